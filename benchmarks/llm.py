"""What an evaluation by a language model costs: ours, a plain loop, and ragas, on one local server.

The embedded small model serves all of them, one after the other, through a proxy that counts what
each sends: calls, prompt tokens, prompt tokens that the server had to evaluate (not served from its
prefix cache), generated tokens, seconds, and the share of pairs that got a score. The summaries are
SummEval's where SEVAL_EX_DATA names them, else the shipped sample's. The model is far too small to
judge; this measures the work, not the verdicts.

ragas is no dependency. Give the interpreter of an environment that has it (`pip install ragas
'langchain-community<0.4'`), or leave it out: `python benchmarks/llm.py --ragas PATH/bin/python`.
"""

import argparse
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from seval_ex import SEvalEx
from seval_ex.llm import LLMError, Message, OpenAIProvider, Request, _llama_server, find_gguf
from seval_ex.text import sentences

Pair = tuple[str, str]
SETTINGS = {"num_ctx": 8192, "num_predict": 600}
HEADER = f"{'':<22} {'calls':>6} {'sent':>9} {'evaluated':>10} {'generated':>10} {'s':>8} scored"

RAGAS = """
import asyncio, json, sys
from openai import AsyncOpenAI
from ragas.llms import llm_factory
from ragas.metrics.collections import Faithfulness

async def main():
    pairs = json.load(open(sys.argv[2]))
    client = AsyncOpenAI(base_url=sys.argv[1], api_key="none", timeout=600, max_retries=0)
    scorer = Faithfulness(llm=llm_factory("smollm2", client=client, temperature=0, max_tokens=600))
    scores = []
    for source, summary in pairs:
        try:
            result = await scorer.ascore(
                user_input="Summarize the document.", response=summary, retrieved_contexts=[source]
            )
            scores.append(None if result.value != result.value else result.value)
        except Exception as error:
            print(type(error).__name__, str(error)[:80].replace(chr(10), " "), file=sys.stderr)
            scores.append(None)
    print(json.dumps(scores))

asyncio.run(main())
"""


class Counter:
    """A proxy in front of a chat server that adds up the usage of its answers."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.reset()
        counter = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = httpx.post(counter.target + self.path, content=body, timeout=900)
                counter.add(answer)
                self.send_response(answer.status_code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def reset(self) -> None:
        """Start counting anew."""
        self.calls = self.sent = self.evaluated = self.generated = 0

    def add(self, answer: httpx.Response) -> None:
        """Add an answer's usage."""
        usage = answer.json().get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        self.calls += 1
        self.sent += usage.get("prompt_tokens", 0)
        self.evaluated += usage.get("prompt_tokens", 0) - cached
        self.generated += usage.get("completion_tokens", 0)


def ours(pairs: list[Pair], address: str, recordings: str | None) -> list[Any]:
    """Evaluate with StSum_Text."""
    provider = OpenAIProvider("smollm2", address)
    evaluator = SEvalEx(engine=provider, recordings=recordings, llm=SETTINGS)
    ledgers = evaluator.evaluate_pairs(pairs, progress=False)
    return [ledger.support for ledger in ledgers]


def plain_loop(pairs: list[Pair], address: str) -> list[Any]:
    """Ask about each sentence in a call of its own, with the sentence before the source."""
    provider = OpenAIProvider("smollm2", address)
    schema = {
        "type": "object",
        "properties": {"label": {"type": "string", "enum": ["supported", "not_supported"]}},
        "required": ["label"],
    }
    scores: list[Any] = []
    for source, summary in pairs:
        labels = []
        for sentence in sentences(summary):
            text = f"Is this statement supported by the source?\n{sentence.text}\nSource:\n{source}"
            message = Message(role="user", content=text)
            try:
                reply = provider.ask(Request(messages=(message,), json_schema=schema, **SETTINGS))
                labels.append(json.loads(reply.text)["label"] == "supported")
            except (LLMError, ValueError, KeyError):
                labels.append(None)
        scores.append(None if None in labels else sum(labels) / len(labels))
    return scores


def ragas(pairs: list[Pair], address: str, python: str) -> list[Any]:
    """Run ragas' Faithfulness in an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "pairs.json"
        data.write_text(json.dumps(pairs), encoding="utf-8")
        command = [python, "-c", RAGAS, address, str(data)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def load_pairs(summaries: int, documents: int) -> list[Pair]:
    """Take as many summaries as asked for, evenly from as many documents."""
    from seval_ex.tables import table_data

    frame, note = table_data("auto")
    print(note)
    chosen = list(dict.fromkeys(frame["id"]))[:documents]
    parts = [frame[frame["id"] == name].head(summaries // documents) for name in chosen]
    return [(s, t) for part in parts for s, t in zip(part["source"], part["summary"], strict=True)]


def measure(name: str, counter: Counter, run: Callable[[], list[Any]]) -> dict[str, float]:
    """Run one contestant and print its row."""
    counter.reset()
    start = time.perf_counter()
    scores = run()
    seconds = time.perf_counter() - start
    scored = sum(score is not None for score in scores) / len(scores)
    print(
        f"{name:<22} {counter.calls:>6} {counter.sent:>9} {counter.evaluated:>10} "
        f"{counter.generated:>10} {seconds:>8.1f} {scored:>7.0%}",
        flush=True,
    )
    return {"evaluated": counter.evaluated, "seconds": seconds}


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summaries", type=int, default=16)
    parser.add_argument("--documents", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--ragas", help="interpreter of an environment that has ragas")
    options = parser.parse_args()
    counter = Counter(_llama_server(find_gguf("smollm2"), SETTINGS["num_ctx"]))
    for documents in options.documents:
        compare(load_pairs(options.summaries, documents), documents, counter, options.ragas)


def compare(pairs: list[Pair], documents: int, counter: Counter, python: str | None) -> None:
    """Print the rows of all contestants for one set of pairs."""
    address = counter.address
    print(f"\n{len(pairs)} summaries of {documents} document(s)\n{HEADER}")
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "replies.db")
        mine = measure("seval_ex, stsum_text", counter, lambda: ours(pairs, address, store))
        again = measure("the same again", counter, lambda: ours(pairs, address, store))
    measure("one call a statement", counter, lambda: plain_loop(pairs, address))
    print(f"running again takes {again['seconds'] / mine['seconds']:.2%} of the time")
    if python:
        theirs = measure("ragas, Faithfulness", counter, lambda: ragas(pairs, address, python))
        print(
            f"evaluated prompt tokens: {mine['evaluated'] / theirs['evaluated']:.2f} of ragas'; "
            f"time: {mine['seconds'] / theirs['seconds']:.2f}"
        )


if __name__ == "__main__":
    main()
