"""The OpenAI-compatible provider against a server that speaks the protocol."""

import math
import socket
import threading
import time

import pytest
from servers import MODEL, Answer, OpenAIServer, openai_reply, serving_model, token

from seval_ex import SEvalEx
from seval_ex.ledger import InvalidInput
from seval_ex.llm import (
    ContextOverflow,
    LLMError,
    Message,
    ModelNotFound,
    OpenAIProvider,
    Refused,
    ReplyTruncated,
    Request,
    ServerUnavailable,
    make_provider,
)

pytest.importorskip("httpx")

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
BUSY = Answer({"error": {"message": "server busy"}}, 503)


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def provider(server, **options):
    return OpenAIProvider(MODEL, f"{server.address}/v1", **{"pause": 0.01, "timeout": 5} | options)


def error_of(script, request=QUESTION, **options):
    """The error that a script leads to, and how often the server was asked."""
    with OpenAIServer(script) as server, pytest.raises(LLMError) as caught:
        provider(server, **options).ask(request)
    return caught.value, len(server.chats)


def test_the_exact_request():
    with OpenAIServer(['{"a": "no"}']) as server:
        provider(server).ask(QUESTION)
    assert server.chats == [
        {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "Answer in JSON."},
                {"role": "user", "content": "Is it raining?"},
            ],
            "temperature": 0.0,
            "seed": 0,
            "max_tokens": 100,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA},
            },
        }
    ]
    [asked] = server.asked
    assert asked.method == "POST" and asked.path == "/v1/chat/completions"
    assert asked.headers["content-type"] == "application/json"
    assert "authorization" not in asked.headers


def test_settings_that_are_sent_when_given():
    changes = {"temperature": 0.7, "seed": 11, "think": False, "logprobs": 3, "json_schema": None}
    with OpenAIServer(["no"]) as server:
        provider(server).ask(QUESTION.model_copy(update=changes))
    [body] = server.chats
    assert body["temperature"] == 0.7 and body["seed"] == 11
    assert body["logprobs"] is True and body["top_logprobs"] == 3
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "response_format" not in body


def test_the_key_comes_from_the_environment_only(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with OpenAIServer(["no", Answer({"error": {"message": "no"}}, 400)]) as server:
        asked = provider(server)
        asked.ask(QUESTION)
        assert server.asked[0].headers["authorization"] == "Bearer sk-secret"
        assert "sk-secret" not in str(asked.identity)
        with pytest.raises(LLMError) as caught:
            asked.ask(QUESTION)
        assert "sk-secret" not in str(caught.value) + caught.value.raw
    with pytest.raises(TypeError):
        OpenAIProvider(MODEL, server.address, api_key="sk-secret")


def test_the_key_is_in_no_ledger(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with OpenAIServer(serving_model) as server:
        ledger = SEvalEx(engine=provider(server), recordings=None).evaluate("It rained.", "It is.")
    assert ledger.status == "ok" and "sk-secret" not in ledger.to_json()


def test_the_address_comes_from_the_environment(monkeypatch):
    with OpenAIServer(["no"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.address}/v1/")
        assert make_provider(f"openai:{MODEL}", pause=0.01).ask(QUESTION).text == "no"


def test_the_address_in_the_engine_name():
    with OpenAIServer(serving_model) as server:
        name = f"openai:{MODEL}@{server.address}/v1"
        ledger = SEvalEx(engine=name, recordings=None).evaluate("It rained.", "It rained.")
    assert ledger.precision == 1 and ledger.engine == name
    assert {body["model"] for body in server.chats} == {MODEL}


@pytest.mark.parametrize("address", ["localhost:8000/v1", "ftp://host/v1", "host"])
def test_an_address_without_http(address):
    with pytest.raises(InvalidInput, match="http://"):
        OpenAIProvider(MODEL, address)


def test_a_reply_is_read_in_full():
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 7,
        "total_tokens": 127,
        "prompt_tokens_details": {"cached_tokens": 96},
    }
    body = openai_reply(
        "yes",
        usage,
        reasoning_content="it is wet outside",
        logprobs=[token("yes", -0.1, yes=-0.1, no=-2.5)],
    )
    with OpenAIServer([body]) as server:
        reply = provider(server).ask(QUESTION)
    assert (reply.text, reply.thinking) == ("yes", "it is wet outside")
    assert (reply.prompt_tokens, reply.output_tokens, reply.cached_tokens) == (120, 7, 96)
    assert reply.finish_reason == "stop" and 0 < reply.seconds < 5
    [first] = reply.logprobs
    assert (first.token, first.logprob, first.top) == ("yes", -0.1, {"yes": -0.1, "no": -2.5})


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": 0},
        {"prompt_tokens": None, "completion_tokens": None, "prompt_tokens_details": None},
    ],
)
def test_missing_counts_are_unknown(usage):
    with OpenAIServer([openai_reply("x", usage)]) as server:
        reply = provider(server).ask(QUESTION)
    assert (reply.prompt_tokens, reply.output_tokens, reply.cached_tokens) == (None, None, None)


def test_an_empty_reply_is_a_reply():
    with OpenAIServer([openai_reply(None, finish_reason=None)]) as server:
        reply = provider(server).ask(QUESTION)
    assert reply.text == "" and reply.finish_reason == "stop"


def refusing(*types):
    """A server that refuses some kinds of response_format, as real ones word it."""

    def script(body):
        kind = body.get("response_format", {}).get("type")
        if kind in types:
            message = f"'response_format.type' of {kind!r} is not supported with this model."
            return Answer({"error": {"message": message, "param": "response_format"}}, 400)
        return f"{kind}"

    return script


@pytest.mark.parametrize(
    "refused, used",
    [
        ((), ["json_schema"]),
        (("json_schema",), ["json_schema", "json_object"]),
        (("json_schema", "json_object"), ["json_schema", "json_object", None]),
    ],
)
def test_the_format_falls_back_and_is_remembered(refused, used):
    with OpenAIServer(refusing(*refused)) as server:
        asked = provider(server)
        replies = [asked.ask(QUESTION).text for _ in range(2)]
    kinds = [body.get("response_format", {}).get("type") for body in server.chats]
    assert kinds == [*used, used[-1]] and replies == [str(used[-1])] * 2
    assert all(body["messages"] == server.chats[0]["messages"] for body in server.chats)


def test_threads_learn_the_format_together():
    """Several refusals at once must not skip a format."""
    together = threading.Barrier(4, timeout=5)

    def script(body):
        if body["response_format"]["type"] == "json_schema":
            together.wait()
        return refusing("json_schema")(body)

    found = []
    with OpenAIServer(script) as server:
        asked = provider(server)
        threads = [
            threading.Thread(target=lambda: found.append(asked.ask(QUESTION).text))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == ["json_object"] * 4


def test_a_refusal_of_something_else_is_no_fall_back():
    error, calls = error_of([Answer({"error": {"message": "temperature too high"}}, 400)])
    assert isinstance(error, Refused) and calls == 1 and "temperature too high" in str(error)
    assert '"temperature too high"' in error.raw


@pytest.mark.parametrize("status", [401, 403])
def test_without_a_key(status):
    error, calls = error_of([Answer({"error": {"message": "Incorrect API key"}}, status)])
    assert isinstance(error, Refused) and calls == 1
    assert "OPENAI_API_KEY" in str(error) and "Incorrect API key" in error.raw


def test_unknown_model_says_where_to_look():
    with OpenAIServer(models=["other"]) as server:
        with pytest.raises(ModelNotFound, match=f"{server.address}/v1/models") as caught:
            provider(server).ask(QUESTION)
        assert "does not exist" in caught.value.raw and MODEL in str(caught.value)
    assert len(server.chats) == 1


def test_no_server_says_what_to_do():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    with pytest.raises(ServerUnavailable, match="start the server or correct the address"):
        OpenAIProvider(MODEL, address, pause=0.01, tries=2).ask(QUESTION)


@pytest.mark.parametrize(
    "status, message",
    [
        (400, "This model's maximum context length is 4096 tokens. However, you requested 9000"),
        (400, "the request exceeds the available context size, try increasing it"),
        (500, "the request exceeds the available context size, try increasing it"),
    ],
)
def test_overflow_is_refused_at_once(status, message):
    error, calls = error_of([Answer({"error": {"message": message}}, status), "too late"])
    assert isinstance(error, ContextOverflow) and calls == 1
    assert message in str(error) and message in error.raw


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_a_busy_server_is_asked_again(status):
    busy = Answer({"error": {"message": "busy"}}, status)
    with OpenAIServer([busy, busy, "fine"]) as server:
        assert provider(server).ask(QUESTION).text == "fine"
    assert len(server.chats) == 3


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_stays_busy(status):
    error, calls = error_of([Answer({"error": {"message": "busy"}}, status)] * 9, tries=3)
    assert isinstance(error, ServerUnavailable) and calls == 3
    assert str(status) in str(error) and "busy" in error.raw


@pytest.mark.parametrize("status", [429, 503])
def test_the_server_says_how_long_to_wait(status):
    limited = Answer({"error": {"message": "slow"}}, status, headers={"Retry-After": "0.2"})
    start = time.perf_counter()
    error, calls = error_of([limited] * 2, tries=2, pause=0.001)
    assert calls == 2 and error.retry_after == 0.2
    assert 0.2 <= time.perf_counter() - start < 2


def test_the_server_says_to_come_back_at_once():
    limited = Answer({"error": {"message": "slow"}}, 429, headers={"Retry-After": "0"})
    start = time.perf_counter()
    error_of([limited] * 3, tries=3, pause=3)
    assert time.perf_counter() - start < 2


def test_a_date_in_retry_after_leaves_the_usual_pause():
    when = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}
    error, calls = error_of(
        [Answer({"error": {"message": "slow"}}, 503, headers=when)] * 2, tries=2
    )
    assert calls == 2 and error.retry_after is None


def test_a_slow_server_times_out():
    start = time.perf_counter()
    error, calls = error_of(lambda _: Answer("{}", delay=1.5), timeout=0.1, tries=2)
    assert isinstance(error, ServerUnavailable) and calls == 2
    assert time.perf_counter() - start < 1.4
    assert "0.1" in str(error) and "timeout" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(drop=True),
        Answer(openai_reply("whole"), missing_bytes=50),
        Answer('{"choices": [{"mess'),
        Answer("<html>Bad gateway</html>"),
        Answer({"error": "as a 200"}),
        Answer({"choices": []}),
        Answer({"choices": None}),
        Answer([]),
        Answer("null"),
        Answer({"choices": ["text"]}),
        Answer({"choices": [{"message": None}]}),
    ],
    ids=[
        *("dropped", "cut", "half of a JSON", "HTML", "error with 200", "no choice", "null choice"),
        *("list", "null", "text for a choice", "null message"),
    ],
)
def test_broken_answers_are_asked_again(answer):
    error, calls = error_of([answer] * 2, tries=2)
    assert isinstance(error, ServerUnavailable) and calls == 2
    with OpenAIServer([answer, "whole"]) as server:
        assert provider(server).ask(QUESTION).text == "whole"


def test_a_broken_answer_is_kept_as_it_came():
    error, _ = error_of([Answer("<html>Bad gateway</html>")], tries=1)
    assert error.raw == "<html>Bad gateway</html>"


def test_a_reply_that_broke_off():
    error, calls = error_of([openai_reply('{"a": "n', finish_reason="length")])
    assert isinstance(error, ReplyTruncated) and calls == 1
    assert error.raw == '{"a": "n' and "100" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        openai_reply(None, refusal="I can't help with that."),
        openai_reply("", finish_reason="content_filter"),
    ],
    ids=["refusal", "content filter"],
)
def test_a_refusal_is_no_reply(body, tmp_path):
    error, calls = error_of([body])
    assert isinstance(error, Refused) and calls == 1 and error.raw
    with OpenAIServer(lambda _: body) as server:
        evaluator = SEvalEx(engine=provider(server), recordings=tmp_path / "replies.db")
        ledger = evaluator.evaluate("It rained.", "It rained.")
        assert ledger.status == "llm_error" and ledger.precision is None
        before = len(server.chats)
        evaluator.evaluate("It rained.", "It rained.")
    assert len(server.chats) == 2 * before, "a refusal was recorded"


def test_what_does_not_fit_is_not_sent():
    long = QUESTION.model_copy(
        update={"messages": (Message(role="user", content="word " * 12_000),)}
    )
    error, calls = error_of([], long)
    assert isinstance(error, ContextOverflow) and calls == 0
    assert "2048" in str(error) and "20108" in str(error)


def test_a_prompt_that_was_cut():
    long = Request(messages=(Message(role="user", content="word " * 12_000),), num_ctx=32_768)
    error, calls = error_of([openai_reply("{}", {"prompt_tokens": 2050})], long)
    assert isinstance(error, ContextOverflow) and calls == 1
    assert "2050" in str(error) and "6666" in str(error)


def label_tokens(reply):
    """The tokens of a reply of two verdicts; the labels' first tokens have alternatives."""
    tokens = []
    for part in reply:
        top = {"supp": math.log(0.8), "not": math.log(0.2)} if part == "supp" else {}
        top = {"not": math.log(0.9), "supp": math.log(0.1)} if part == "not" else top
        tokens.append(token(part, -0.1, **top))
    return tokens


@pytest.mark.parametrize(
    "reason",
    [["because"], ["caf", "\ufffd", "\ufffd"], ["\ufffd\ufffd\ufffd", "\ufffd"]],
    ids=["ASCII", "half an accent a token", "half an emoji a token"],
)
def test_support_from_the_probability_of_the_label(reason):
    """Servers show a token that holds part of a character as U+FFFD, so lengths may differ."""
    whole = {"because": "because", "caf": "café"}.get(reason[0], "😀")
    pieces = ['{"verdicts": [', '{"id": 1, "evidence": [1], "label": "', "supp", "orted"]
    pieces += ['", "reason": "', *reason, '"}, ']
    pieces += ['{"id": 2, "evidence": [], "label": "', "not", "_supported"]
    pieces += ['", "reason": "no"}]}']
    text = "".join(pieces).replace("".join(reason), whole)

    def script(body):
        if "<text>" in body["messages"][-1]["content"]:
            return serving_model(body)
        assert body["logprobs"] is True and body["top_logprobs"] == 5
        return openai_reply(text, logprobs=label_tokens(pieces))

    with OpenAIServer(script) as server:
        evaluator = SEvalEx(engine=provider(server), recordings=None, llm={"logprobs": 5})
        ledger = evaluator.evaluate("It rained. Nobody came.", "It rained. All came.")
    assert [verdict.label for verdict in ledger.verdicts] == ["TP", "FP"]
    assert [verdict.support for verdict in ledger.verdicts] == pytest.approx([0.8, 0.1])
