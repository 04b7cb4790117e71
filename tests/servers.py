"""Local servers that speak Ollama's and OpenAI's protocols and answer from a script.

A script is a list of answers in order, or a function of the request's body that makes one. An
answer is a text, an `Answer`, or a dictionary that is the whole body.
"""

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIGEST = "845dbda0ea48ed749caafd9e6037047aa19acfcfd82e704d7ca97d631a0b697e"
VERSION = "0.13.5"
MODEL = "qwen2.5:72b"


@dataclass(frozen=True)
class Answer:
    """What a server sends, faults included."""

    body: Any = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    missing_bytes: int = 0  # announce so many more than are sent
    drop: bool = False  # close the connection without a word


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Script = Iterable[Any] | Callable[[Any], Any]


class Server:
    """An HTTP server on a free port of this machine; a context manager."""

    chat_path = ""

    def __init__(self, script: Script = (), models: Iterable[str] = (MODEL,)) -> None:
        self.models = list(models)
        self.asked: list[Asked] = []
        self.busy = self.most_at_once = 0
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._function = script if callable(script) else None
        self._answers = iter(()) if callable(script) else iter(script)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def chats(self) -> list[Any]:
        """The bodies of the chat requests, in order."""
        return [asked.body for asked in self.asked if asked.path == self.chat_path]

    def next_answer(self, body: Any) -> Answer:
        if self._function:
            answer = self._function(body)
        else:
            with self._lock:
                answer = next(self._answers, None)
        if answer is None:
            return self.error(501, "the script is at its end")
        return answer if isinstance(answer, Answer) else Answer(self.chat_body(body, answer))

    def chat_body(self, body: Any, answer: Any) -> Any:
        return answer if isinstance(answer, dict) else self.reply(body, answer)

    def respond(self, asked: Asked) -> Answer:
        raise NotImplementedError

    def reply(self, body: Any, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def error(self, status: int, message: str, **options: Any) -> Answer:
        raise NotImplementedError

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                server._connections.append(self.connection)

            def do_GET(self) -> None:
                self._serve(None)

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._serve(json.loads(raw))

            def _serve(self, body: Any) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, body)
                with server._lock:
                    server.asked.append(asked)
                    server.busy += 1
                    server.most_at_once = max(server.busy, server.most_at_once)
                try:
                    self._send(server.respond(asked))
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    with server._lock:
                        server.busy -= 1

            def _send(self, answer: Answer) -> None:
                time.sleep(answer.delay)
                if answer.drop:
                    linger = struct.pack("ii", 1, 0)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.close_connection = True
                    return
                raw = answer.body
                if not isinstance(raw, bytes):
                    raw = raw.encode() if isinstance(raw, str) else json.dumps(raw).encode()
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("Content-Length", str(len(raw) + answer.missing_bytes))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw)
                self.close_connection = bool(answer.missing_bytes)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _tokens(body: Any) -> int:
    return sum(len(message["content"]) for message in body["messages"]) // 4


class OllamaServer(Server):
    """Ollama's /api/chat, /api/tags, /api/version and /api/show."""

    chat_path = "/api/chat"

    def respond(self, asked: Asked) -> Answer:
        if asked.path == "/api/version":
            return Answer({"version": VERSION})
        if asked.path == "/api/tags":
            return Answer({"models": [self._listed(name) for name in self.models]})
        if asked.path not in ("/api/chat", "/api/show"):
            return Answer("404 page not found", 404)
        if asked.body["model"] not in self.models:
            return self.error(404, f"model '{asked.body['model']}' not found")
        if asked.path == "/api/show":
            return Answer({"details": self._details(), "model_info": {}, "capabilities": []})
        return self.next_answer(asked.body)

    def error(self, status: int, message: str, **options: Any) -> Answer:
        return Answer({"error": message}, status, **options)

    def reply(self, body: Any, text: str, **changes: Any) -> dict[str, Any]:
        return ollama_reply(text, prompt_eval_count=_tokens(body), **changes)

    @staticmethod
    def _details() -> dict[str, Any]:
        return {
            "parent_model": "",
            "format": "gguf",
            "family": "qwen2",
            "families": ["qwen2"],
            "parameter_size": "72.7B",
            "quantization_level": "Q4_K_M",
        }

    def _listed(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "model": name,
            "modified_at": "2026-01-05T10:12:13.123456789+01:00",
            "size": 47415724625,
            "digest": DIGEST,
            "details": self._details(),
        }


def ollama_reply(text: str, thinking: str | None = None, **changes: Any) -> dict[str, Any]:
    """Make the body of a whole chat reply; a change to None leaves a field out."""
    message = {"role": "assistant", "content": text}
    body = {
        "model": MODEL,
        "created_at": "2026-01-05T10:12:13.123456789Z",
        "message": message | ({"thinking": thinking} if thinking else {}),
        "done": True,
        "done_reason": "stop",
        "total_duration": 5191566416,
        "load_duration": 2154458,
        "prompt_eval_count": 26,
        "prompt_eval_duration": 383809000,
        "eval_count": 7,
        "eval_duration": 4799921000,
    }
    return {name: value for name, value in (body | changes).items() if value is not None}


class OpenAIServer(Server):
    """OpenAI's /v1/chat/completions and /v1/models."""

    chat_path = "/v1/chat/completions"

    def respond(self, asked: Asked) -> Answer:
        if asked.path == "/v1/models":
            data = [
                {"id": name, "object": "model", "created": 1767607933, "owned_by": "vllm"}
                for name in self.models
            ]
            return Answer({"object": "list", "data": data})
        if asked.path != self.chat_path:
            return Answer({"detail": "Not Found"}, 404)
        if asked.body["model"] not in self.models:
            return self.error(404, f"The model `{asked.body['model']}` does not exist.")
        return self.next_answer(asked.body)

    def error(self, status: int, message: str, **options: Any) -> Answer:
        error = {"message": message, "type": "error", "param": None, "code": status}
        return Answer({"error": error}, status, **options)

    def reply(self, body: Any, text: str, **changes: Any) -> dict[str, Any]:
        prompt, completion = _tokens(body), max(1, len(text) // 4)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        return openai_reply(text, usage=usage, **changes)


def openai_reply(
    text: str | None,
    usage: dict[str, Any] | None = None,
    finish_reason: str | None = "stop",
    logprobs: list[dict[str, Any]] | None = None,
    **message: Any,
) -> dict[str, Any]:
    """Make the body of a whole chat completion."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "logprobs": {"content": logprobs} if logprobs else None,
        "finish_reason": finish_reason,
    }
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1767607933,
        "model": MODEL,
        "choices": [choice],
    }
    return body | ({"usage": usage} if usage is not None else {})


def token(text: str, logprob: float, **top: float) -> dict[str, Any]:
    """Make one entry of a reply's log-probabilities."""
    others = [{"token": t, "logprob": p, "bytes": list(t.encode())} for t, p in top.items()]
    return {
        "token": text,
        "logprob": logprob,
        "bytes": list(text.encode("utf-8", "replace")),
        "top_logprobs": others,
    }


SECTION = re.compile(r"<(text|known|source|claimed|statements)>(.*)</\1>", re.DOTALL)


def sections(messages: Any) -> dict[str, Any]:
    """Read the data of a prompt, as a model would see it: by its markers."""
    last = next(m for m in messages if _part(m, "role") == "user")
    return {name: json.loads(data) for name, data in SECTION.findall(_part(last, "content"))}


def _part(message: Any, name: str) -> str:
    return message[name] if isinstance(message, dict) else getattr(message, name)


def statements_reply(*statements: str) -> str:
    return json.dumps({"statements": statements}, ensure_ascii=False)


def verdicts_reply(labels: dict[int, str], evidence: tuple[int, ...] = (1,)) -> str:
    verdicts = [
        {"id": number, "evidence": list(evidence), "label": label, "reason": "so it says"}
        for number, label in labels.items()
    ]
    return json.dumps({"verdicts": verdicts})


def model_text(messages: Any) -> str:
    """Answer as a small honest model: sentences are statements, copied ones are supported."""
    found = sections(messages)
    if "text" in found:
        parts = re.split(r"(?<=[.!?。！？])\s*", found["text"])
        return statements_reply(*filter(None, parts))
    known = found.get("known", found.get("source"))
    asked = found.get("claimed", found.get("statements"))
    texts = [each["text"] for each in known]
    return json.dumps(
        {
            "verdicts": [
                {
                    "id": each["id"],
                    "evidence": [n for n, text in enumerate(texts, 1) if each["text"] in text],
                    "label": "supported"
                    if any(each["text"] in text for text in texts)
                    else "not_supported",
                    "reason": "it is said",
                }
                for each in asked
            ]
        },
        ensure_ascii=False,
    )


def serving_model(body: Any) -> str:
    """`model_text` as a script of a server."""
    return model_text(body["messages"])


def scripted_model(request: Any) -> str:
    """`model_text` as a script of the provider Scripted."""
    return model_text(request.messages)
