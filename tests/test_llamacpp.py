"""The embedded llama.cpp server with a real, small model; and Ollama's client on top of it."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time

import pytest

from seval_ex import SEvalEx
from seval_ex import llm as llm_module
from seval_ex.datasets import load_summeval
from seval_ex.ledger import InvalidInput, Statement
from seval_ex.llm import (
    ContextOverflow,
    LlamaCppProvider,
    Message,
    OllamaProvider,
    OpenAIProvider,
    Request,
    check_window,
    estimated_tokens,
    file_digest,
    find_gguf,
    least_tokens,
)
from seval_ex.recordings import Model, Recordings
from seval_ex.text import sentences
from seval_ex.verify import LLMVerifier, label_support, read_verdicts, verdicts_schema

pytest.importorskip(
    "xllamacpp", reason="pip install 'seval_ex[llamacpp]' (and libgomp1)", exc_type=ImportError
)
try:
    MODEL_FILE = find_gguf("smollm2")
except InvalidInput as error:
    pytest.skip(str(error), allow_module_level=True)

SOURCE = "The mill in Oslo burned down in April. Nobody was hurt."
SUMMARY = "The mill burned down."
ENGINE = "llamacpp:smollm2"
SETTINGS = {"num_ctx": 2048, "num_predict": 120}


def question(text, **changes):
    return Request(messages=(Message(role="user", content=text),), **(SETTINGS | changes))


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    """One evaluation, the store with its replies, and the server that goes on running."""
    path = tmp_path_factory.mktemp("llamacpp") / "replies.db"
    ledger = SEvalEx(engine=ENGINE, recordings=path, llm=SETTINGS).evaluate(SOURCE, SUMMARY)
    [(key, server)] = llm_module._servers.items()
    assert key == (MODEL_FILE, 2048)
    return ledger, path, f"{server.listening_address}/v1"


def test_an_evaluation_from_end_to_end(evaluated):
    ledger, path, _ = evaluated
    assert ledger.status == "ok", ledger.reason
    assert ledger.statements and ledger.statements[0].text and ledger.engine == ENGINE
    made = ledger.settings["llm"]
    assert made["provider"] == "llamacpp" and made["model"] == MODEL_FILE.name
    assert made["digest"] == file_digest(MODEL_FILE) and len(made["digest"]) == 64
    assert ledger.usage.calls >= 2 and ledger.usage.output_tokens > 10
    store = Recordings(path)
    assert len(store) == ledger.usage.calls
    for _, parts, reply in store.rows():
        assert reply.finish_reason == "stop" and json.loads(reply.text)
        assert parts["temperature"] == 0 and parts["num_ctx"] == 2048
    for verdict in ledger.verdicts:
        assert verdict.reply is None or verdict.reply in [key for key, _, _ in store.rows()]


def test_the_estimates_hold_for_a_real_tokeniser(evaluated):
    """Never fewer tokens than the least; the estimate is near.

    It is not above for each text: this model's tokeniser, which has a small vocabulary, makes
    442 tokens of the first prompt, where 397 are estimated. The server refuses what is too long.
    """
    _, path, _ = evaluated
    for _, parts, reply in Recordings(path).rows():
        fields = {name: parts[name] for name in Request.model_fields}
        request = Request.model_validate(fields)
        assert least_tokens(request) <= reply.prompt_tokens
        assert 0.85 < estimated_tokens(request) / reply.prompt_tokens < 1.5


def test_again_from_the_recordings(evaluated, monkeypatch):
    ledger, path, _ = evaluated

    def fail(*_):
        raise AssertionError("the model was asked")

    monkeypatch.setattr(LlamaCppProvider, "ask", fail)
    again = SEvalEx(engine=ENGINE, recordings=path, llm=SETTINGS).evaluate(SOURCE, SUMMARY)
    assert again == ledger
    replayed = SEvalEx(engine=f"replay:{path}", llm=SETTINGS).evaluate(SOURCE, SUMMARY)
    assert replayed.model_copy(update={"engine": ENGINE}) == ledger


def test_one_server_serves_all(evaluated):
    _, _, address = evaluated
    other = LlamaCppProvider("smollm2", 2048)
    assert other._server.base_url == address and len(llm_module._servers) == 1
    named = LlamaCppProvider(str(MODEL_FILE), 2048)
    assert named.identity == other.identity and named._server.base_url == address


def test_overflow_before_the_call(evaluated):
    with pytest.raises(ContextOverflow, match=r"about \d{4,} tokens.*num_ctx=2048"):
        LlamaCppProvider("smollm2", 2048).ask(question("word " * 5000))
    with pytest.raises(InvalidInput, match=r"num_ctx=4096.*2048"):
        LlamaCppProvider("smollm2", 2048).ask(question("?", num_ctx=4096))


def test_overflow_that_the_server_finds(evaluated):
    """The request claims a larger window than the server has."""
    _, _, address = evaluated
    request = question("word " * 3000, num_ctx=8192)
    check_window(request)
    with pytest.raises(ContextOverflow, match=r"\d{4} tokens.*2048 tokens") as caught:
        OpenAIProvider("any", address).ask(request)
    counted = json.loads(caught.value.raw)["error"]
    assert counted["n_ctx"] == 2048 and 2900 < counted["n_prompt_tokens"] < 3200
    assert str(counted["n_prompt_tokens"]) in str(caught.value)


def test_support_from_the_probability_of_the_label(evaluated):
    _, _, address = evaluated
    replies = []

    class Kept(OpenAIProvider):
        def ask(self, request):
            replies.append(super().ask(request))
            return replies[-1]

    settings = Request(messages=(), logprobs=5, **SETTINGS)
    verifier = LLMVerifier(Model(Kept("any", address)), settings)
    sentences = [
        Statement(id="D1", side="source", text="The mill in Oslo burned down in April."),
        Statement(id="D2", side="source", text="Nobody was hurt."),
    ]
    claim = Statement(id="S1", side="summary", text="The mill burned down.")
    [verdict] = verifier.verify([claim], sentences)
    [reply] = replies
    said = "".join(token.token for token in reply.logprobs)
    assert said.rstrip() == reply.text.rstrip()
    assert all(len(token.top) == 5 and token.logprob <= 0 for token in reply.logprobs)
    support = label_support(reply, 1)
    assert 0 <= support <= 1 and verdict.support == support
    assert reply.prompt_tokens > 300 and abs(reply.output_tokens - len(reply.logprobs)) <= 1


def test_the_schema_binds_the_model(evaluated):
    """Even a question that asks for something else gets verdicts of the right shape."""
    _, _, address = evaluated
    request = question("Write a poem.", json_schema=verdicts_schema(1), num_predict=200)
    try:
        reply = OpenAIProvider("any", address).ask(request)
    except llm_module.ReplyTruncated as error:
        assert error.raw.lstrip().startswith("{")
    else:
        assert len(json.loads(reply.text)["verdicts"]) == 1 and read_verdicts(
            json.loads(reply.text)
        )


@pytest.fixture(scope="session")
def proxy(evaluated):
    """An Ollama server of another make, in front of the real model."""
    for package in ("ollama_proxy", "uvicorn", "ollama"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install ollama-proxy-plus ollama")
    _, _, address = evaluated
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "EXTRA_MODELS": "local/smollm2",
        "PROVIDERS_LOCAL_BASE_URL": address,
        "PROVIDERS_LOCAL_API_KEY": "none",
    }
    command = [sys.executable, "-m", "uvicorn", "ollama_proxy.server:app", "--host", "127.0.0.1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*command, "--port", str(port)], env=environment, **quiet)
    try:
        deadline = time.monotonic() + 30
        while server.poll() is None and time.monotonic() < deadline:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        assert server.poll() is None, "the proxy did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


def test_ollamas_client_against_another_server(proxy):
    provider = OllamaProvider("local/smollm2", proxy, timeout=60)
    identity = provider.identity
    assert identity["model"] == "local/smollm2" and len(identity["digest"]) > 30
    assert provider.version
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    request = question("Is water wet?", json_schema=schema, num_predict=40)
    reply = provider.ask(request)
    assert json.loads(reply.text)["answer"] in ("yes", "no")
    assert reply.seconds > 0 and reply.finish_reason == "stop"


@pytest.mark.parametrize("variant", ["stsum_text", "base", "3-chunk"])
def test_three_pipelines_on_real_summaries(variant, shared_data, tmp_path):
    """Two systems' summaries of a SummEval document, both cut to what CI has time for."""
    frame = load_summeval(shared_data / "summeval" / "summeval_16systems.jsonl.gz").iloc[[8, 14]]
    frame["source"] = [" ".join(s.text for s in sentences(text)[:3]) for text in frame["source"]]
    frame["summary"] = [sentences(text)[0].text for text in frame["summary"]]
    settings = {"num_ctx": 2048, "num_predict": 300}
    store = Recordings(tmp_path / "replies.db")
    runs = []
    for workers in (1, 2):
        evaluator = SEvalEx(variant, engine=ENGINE, recordings=store, llm=settings)
        runs.append(evaluator.evaluate_many(frame, progress=False, workers=workers, ledgers=True))
        asked = evaluator._parts.extractor.model.asked
    first, again = runs
    assert asked == 0 and list(first["ledger"]) == list(again["ledger"])
    assert set(first["status"]) <= {"ok", "parse_failed", "no_statements"}
    for ledger in first["ledger"]:
        assert ledger.usage.calls and ledger.usage.prompt_tokens
        if ledger.status == "ok":
            labels = {verdict.label.value for verdict in ledger.verdicts}
            assert labels <= {"TP", "FP", "FN", "covered", "unjudged"}
            sides = {statement.side for statement in ledger.statements}
            assert sides == ({"summary"} if variant == "stsum_text" else {"summary", "source"})
