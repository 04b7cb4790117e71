"""The Ollama provider against a server that speaks Ollama's protocol."""

import json
import socket
import time

import pytest
from servers import (
    DIGEST,
    MODEL,
    VERSION,
    Answer,
    OllamaServer,
    ollama_reply,
    serving_model,
    token,
)

from seval_ex import SEvalEx
from seval_ex.llm import (
    ContextOverflow,
    LLMError,
    Message,
    ModelNotFound,
    OllamaProvider,
    Refused,
    ReplyTruncated,
    Request,
    ServerUnavailable,
)

ollama = pytest.importorskip("ollama")

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
QUESTION = Request(
    messages=(
        Message(role="system", content="Answer in JSON."),
        Message(role="user", content="Is it raining?"),
    ),
    json_schema=SCHEMA,
    num_ctx=2048,
    num_predict=100,
)


def provider(server, **options):
    return OllamaProvider(MODEL, server.address, **{"pause": 0.01, "timeout": 5} | options)


def error_of(script, request=QUESTION, **options):
    """The error that a script leads to, and how often the server was asked."""
    with OllamaServer(script) as server, pytest.raises(LLMError) as caught:
        provider(server, **options).ask(request)
    return caught.value, len(server.chats)


def test_the_exact_request():
    with OllamaServer(['{"a": "no"}']) as server:
        provider(server).ask(QUESTION)
    assert server.chats == [
        {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "Answer in JSON."},
                {"role": "user", "content": "Is it raining?"},
            ],
            "tools": [],
            "stream": False,
            "format": SCHEMA,
            "options": {"num_ctx": 2048, "num_predict": 100, "temperature": 0.0, "seed": 0},
            "truncate": False,
            "shift": False,
        }
    ]
    [asked] = server.asked
    assert asked.method == "POST" and asked.path == "/api/chat"
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["host"] == server.address.removeprefix("http://")


def test_settings_that_are_sent_when_given():
    changes = {"temperature": 0.7, "seed": 11, "think": False, "logprobs": 3, "json_schema": None}
    with OllamaServer(["no"]) as server:
        provider(server, keep_alive="30m").ask(QUESTION.model_copy(update=changes))
    [body] = server.chats
    assert body["options"] == {"num_ctx": 2048, "num_predict": 100, "temperature": 0.7, "seed": 11}
    assert body["think"] is False and body["keep_alive"] == "30m"
    assert body["logprobs"] is True and body["top_logprobs"] == 3
    assert "format" not in body and body["truncate"] is False and body["shift"] is False


@pytest.mark.parametrize("think", [True, False, "high"])
def test_think_is_sent_as_given(think):
    with OllamaServer(["no"]) as server:
        provider(server).ask(QUESTION.model_copy(update={"think": think}))
    assert server.chats[0]["think"] == think


def test_text_beyond_ascii_arrives_as_it_was():
    text = "Ærø — 一句。 😀 \u2028 \x00"
    with OllamaServer([text]) as server:
        reply = provider(server).ask(Request(messages=(Message(role="user", content=text),)))
    assert server.chats[0]["messages"][0]["content"] == text and reply.text == text


def test_half_a_character_is_replaced():
    """A model may end a reply in the middle of an emoji; no encoder accepts what it leaves."""
    body = json.dumps(ollama_reply("\ud83d", "\ud83d", logprobs=[token("\ud83d", -0.1)]))
    with OllamaServer([Answer(body)]) as server:
        reply = provider(server).ask(QUESTION)
    assert reply.text == reply.thinking == reply.logprobs[0].token == "\ufffd"
    assert reply.model_dump_json()


def test_a_reply_is_read_in_full():
    tokens = [token("yes", -0.1, yes=-0.1, no=-2.5)]
    body = ollama_reply("yes", "it is wet outside", prompt_eval_count=26, logprobs=tokens)
    with OllamaServer([body]) as server:
        reply = provider(server).ask(QUESTION)
    assert (reply.text, reply.thinking) == ("yes", "it is wet outside")
    assert (reply.prompt_tokens, reply.output_tokens, reply.cached_tokens) == (26, 7, None)
    assert reply.finish_reason == "stop" and 0 < reply.seconds < 5
    [first] = reply.logprobs
    assert (first.token, first.logprob, first.top) == ("yes", -0.1, {"yes": -0.1, "no": -2.5})


@pytest.mark.parametrize("count", [None, 0])
def test_missing_counts_are_unknown(count):
    with OllamaServer([ollama_reply("x", prompt_eval_count=count, eval_count=None)]) as server:
        reply = provider(server).ask(QUESTION)
    assert reply.prompt_tokens is None and reply.output_tokens is None


def test_digest_and_version():
    with OllamaServer(models=["other:7b", MODEL]) as server:
        asked = provider(server)
        assert asked.identity == {"provider": "ollama", "model": MODEL, "digest": DIGEST}
        assert asked.version == VERSION
        assert asked.identity["digest"] == DIGEST
    assert [each.path for each in server.asked] == ["/api/tags", "/api/version"]


def test_a_name_without_a_tag_is_the_latest():
    with OllamaServer(models=["llama3.2:latest"]) as server:
        assert OllamaProvider("llama3.2", server.address).identity["digest"] == DIGEST


def test_a_listed_model_without_a_digest_is_still_there(monkeypatch):
    with OllamaServer() as server:
        listed = server._listed(MODEL)
        del listed["digest"]
        monkeypatch.setattr(server, "_listed", lambda name: listed)
        assert provider(server).identity["digest"] is None


def test_a_server_without_a_version():
    with OllamaServer() as server:
        asked = provider(server)
    assert asked.version is None


def test_the_address_comes_from_the_environment(monkeypatch):
    with OllamaServer(["no"]) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.address.removeprefix("http://"))
        assert OllamaProvider(MODEL).ask(QUESTION).text == "no"
        SEvalEx(engine=f"ollama:{MODEL}", recordings=None)
    assert [each.path for each in server.asked] == ["/api/chat", "/api/tags", "/api/version"]


def test_an_address_in_the_code_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    with OllamaServer(["no"]) as server:
        assert provider(server).ask(QUESTION).text == "no"


def test_unknown_model_says_how_to_get_it():
    with OllamaServer(models=["other"]) as server:
        asked = provider(server)
        with pytest.raises(ModelNotFound, match=f"ollama pull {MODEL}") as caught:
            asked.ask(QUESTION)
        assert caught.value.raw == f"model '{MODEL}' not found"
        with pytest.raises(ModelNotFound, match=f"ollama pull {MODEL}"):
            assert asked.identity
        with pytest.raises(ModelNotFound):
            SEvalEx(engine=asked, recordings=None)
    assert len(server.chats) == 1


def test_no_server_says_how_to_start_it():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    start = time.perf_counter()
    with pytest.raises(ServerUnavailable, match=r"ollama serve.*OLLAMA_HOST"):
        OllamaProvider(MODEL, address, pause=0.01, tries=3).ask(QUESTION)
    assert time.perf_counter() - start > 0.03  # 0.01, then 0.02


@pytest.mark.parametrize(
    "message",
    [
        "the prompt is longer than the context",
        "input length exceeds the context length",
        "input exceeds maximum context length and cannot be truncated further",
        "the input length exceeds the context size",
    ],
)
def test_overflow_is_refused_at_once(message):
    error, calls = error_of([Answer({"error": message}, 400), "too late"])
    assert isinstance(error, ContextOverflow) and calls == 1
    assert message in str(error) and error.raw == message


def test_a_bad_request_is_not_repeated():
    message = "invalid format: schema is broken"
    error, calls = error_of([Answer({"error": message}, 400), "too late"])
    assert isinstance(error, Refused) and calls == 1
    assert message in str(error) and "400" in str(error) and error.raw == message


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_busy_server_is_asked_again(status):
    busy = Answer({"error": "server busy, please try again.  maximum pending requests"}, status)
    with OllamaServer([busy, busy, '{"a": "no"}']) as server:
        assert provider(server).ask(QUESTION).text == '{"a": "no"}'
    assert len(server.chats) == 3 and server.chats[0] == server.chats[2]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_stays_busy(status):
    busy = Answer({"error": "server busy"}, status)
    error, calls = error_of([busy] * 9, tries=3)
    assert isinstance(error, ServerUnavailable) and calls == 3
    assert str(status) in str(error) and error.raw == "server busy"


def test_the_pauses_double():
    busy = Answer({"error": "server busy"}, 503)
    start = time.perf_counter()
    error_of([busy] * 4, pause=0.05, tries=3)
    assert 0.15 <= time.perf_counter() - start < 1.5  # 0.05 + 0.1


def test_the_server_says_how_long_to_wait():
    busy = Answer({"error": "server busy"}, 503, headers={"Retry-After": "0.2"})
    start = time.perf_counter()
    error, calls = error_of([busy] * 2, tries=2, pause=0.001)
    assert calls == 2 and error.retry_after == 0.2
    assert 0.2 <= time.perf_counter() - start < 2


def test_too_many_tokens_a_minute_is_no_overflow():
    """Hosted servers word their rate limits so."""
    busy = Answer({"error": "Too many tokens, please wait before trying again."}, 429)
    with OllamaServer([busy, "fine"]) as server:
        assert provider(server).ask(QUESTION).text == "fine"


def test_a_slow_server_times_out():
    start = time.perf_counter()
    error, calls = error_of(lambda _: Answer("{}", delay=1.5), timeout=0.1, tries=2)
    assert isinstance(error, ServerUnavailable) and calls == 2
    assert time.perf_counter() - start < 1.4
    assert "0.1" in str(error) and "timeout" in str(error)


def test_a_slow_reply_is_waited_for():
    with OllamaServer([Answer(ollama_reply("at last"), delay=0.2)]) as server:
        reply = provider(server, timeout=5).ask(QUESTION)
    assert reply.text == "at last" and reply.seconds >= 0.2


@pytest.mark.parametrize(
    "answer",
    [
        Answer(drop=True),
        Answer(ollama_reply("whole"), missing_bytes=50),
        Answer('{"model": "qwen2.5:72b", "mess'),
        Answer("<html>Bad gateway</html>"),
        Answer({"model": MODEL, "done": True}),
        Answer([]),
        Answer("null"),
        Answer(b"\xff\xfe"),
    ],
    ids=["dropped", "cut", "half of a JSON", "HTML", "no message", "list", "null", "bytes"],
)
def test_broken_answers_are_asked_again(answer):
    error, calls = error_of([answer] * 2, tries=2)
    assert isinstance(error, ServerUnavailable) and calls == 2 and "Ollama" in str(error)
    with OllamaServer([answer, "whole"]) as server:
        assert provider(server).ask(QUESTION).text == "whole"


def test_a_broken_answer_is_kept_as_it_came():
    error, _ = error_of([Answer("<html>Bad gateway</html>")], tries=1)
    assert error.raw == "<html>Bad gateway</html>"


def test_a_reply_that_broke_off():
    error, calls = error_of([ollama_reply('{"a": "n', done_reason="length")])
    assert isinstance(error, ReplyTruncated) and calls == 1
    assert error.raw == '{"a": "n' and "100" in str(error)


def test_what_does_not_fit_is_not_sent():
    long = QUESTION.model_copy(
        update={"messages": (Message(role="user", content="word " * 12_000),)}
    )
    error, calls = error_of([], long)
    assert isinstance(error, ContextOverflow) and calls == 0
    assert "2048" in str(error) and "20108" in str(error)


def test_a_prompt_that_was_cut():
    long = Request(messages=(Message(role="user", content="word " * 12_000),), num_ctx=32_768)
    error, calls = error_of([ollama_reply("{}", prompt_eval_count=2050)], long)
    assert isinstance(error, ContextOverflow) and calls == 1
    assert "2050" in str(error) and "6666" in str(error) and error.raw == "{}"


@pytest.mark.parametrize("variant", ["base", "3-chunk", "stsum_text"])
def test_the_whole_pipeline(variant, tmp_path, monkeypatch):
    source = "The mill burned down in May. Nobody was hurt. Ada Berg owns it. She will rebuild it."
    with OllamaServer(serving_model) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.address)
        evaluator = SEvalEx(
            variant,
            f"ollama:{MODEL}",
            recordings=tmp_path / "replies.db",
            llm={"num_ctx": 4096, "num_predict": 200, "timeout": 5},
        )
        ledger = evaluator.evaluate(source, "Nobody was hurt. It was arson.")
    assert ledger.status == "ok" and ledger.precision == 1 / 2
    made = ledger.settings["llm"]
    assert made["digest"] == DIGEST and made["server_version"] == VERSION
    assert ledger.engine == f"ollama:{MODEL}"
    for body in server.chats:
        assert body["truncate"] is False and body["shift"] is False
        assert body["options"]["temperature"] == 0 and body["options"]["seed"] == 0
        assert body["options"]["num_ctx"] == 4096 and body["options"]["num_predict"] == 200
        assert body["format"]["type"] == "object"
    assert ledger.usage.calls + ledger.source_usage.calls == len(server.chats)
