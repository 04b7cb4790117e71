"""The store of replies: several processes, kill -9, damage, replay."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from servers import (
    MODEL,
    Answer,
    OllamaServer,
    ollama_reply,
    scripted_model,
    sections,
    serving_model,
)

from seval_ex import SEvalEx
from seval_ex.ledger import InvalidInput, SEvalError
from seval_ex.llm import (
    Message,
    OllamaProvider,
    Reply,
    ReplyMissing,
    Request,
    Scripted,
    ServerUnavailable,
)
from seval_ex.pipeline import VARIANTS
from seval_ex.recordings import (
    Model,
    Recordings,
    Replay,
    export_recordings,
    import_recordings,
    key_parts,
    recording_key,
)

IDENTITY = {"provider": "scripted", "model": "scripted", "digest": None}
DOCUMENTS = [
    "The mill burned down in May. Nobody was hurt. Ada Berg owns it. She will rebuild it.",
    "The harbour froze in March. Ships waited for six weeks. Nobody was hurt.",
]


def question(text, **changes):
    return Request(messages=(Message(role="user", content=text),), **changes)


def frame(summaries=6):
    pairs = [(d, f"Nobody was hurt. Summary {n}.") for d in DOCUMENTS for n in range(summaries)]
    return pd.DataFrame(pairs, columns=["source", "summary"])


def ledgers(engine, variant, store, **options):
    evaluator = SEvalEx(variant, engine, recordings=store)
    run = evaluator.evaluate_many(frame(), progress=False, ledgers=True, **options)
    return list(run["ledger"])


WRITER = """
import sys
from seval_ex.llm import Message, Request, Scripted
from seval_ex.recordings import Model, Recordings

path, name = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for each in range(40):
    model = Model(Scripted(lambda request: name), Recordings(path))
    model.ask(Request(messages=(Message(role="user", content=f"common {each}"),)))
    model.ask(Request(messages=(Message(role="user", content=f"{name} {each}"),)))
    model.recordings.close()
"""


def test_several_processes_write_one_new_file(tmp_path):
    path = tmp_path / "replies.db"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, f"w{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    store = Recordings(path)
    assert len(store) == 40 + 4 * 40
    for _, parts, reply in store.rows():
        asked = parts["messages"][0]["content"]
        assert reply.text == asked.split()[0] or asked.startswith("common")
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)


RUN = """
import sys
import pandas as pd
from seval_ex import SEvalEx

frame = pd.read_json(sys.argv[1])
evaluator = SEvalEx("base", sys.argv[2], recordings=sys.argv[3])
run = evaluator.evaluate_many(frame, progress=False, workers=int(sys.argv[4]))
print(run["status"].value_counts().to_dict())
"""


@pytest.mark.parametrize("workers", [1, 3])
def test_kill_9_and_run_again(tmp_path, workers):
    """What was answered and recorded before the kill is not asked again."""
    frame().to_json(tmp_path / "frame.json")
    path = tmp_path / "replies.db"
    half = threading.Event()
    counted = Counter()
    held = []

    def script(body):
        # Held back, so that the process dies while it waits for replies.
        if len(server.chats) > 14 and not half.is_set():
            held.append(body)
            return Answer("{}", delay=30)
        counted[json.dumps(body)] += 1
        return serving_model(body)

    with OllamaServer(script) as server:
        environment = os.environ | {"OLLAMA_HOST": server.address}
        arguments = [tmp_path / "frame.json", f"ollama:{MODEL}", path, str(workers)]
        command = [sys.executable, "-c", RUN, *map(str, arguments)]
        first = subprocess.Popen(command, env=environment)
        deadline = time.monotonic() + 60
        # Once nothing moves for a second, all that was answered is recorded and the rest is held.
        seen, still = None, 0
        while still < 100:
            assert time.monotonic() < deadline and first.poll() is None
            now = len(server.chats), server.busy, len(held)
            still = still + 1 if held and now == seen else 0
            seen = now
            time.sleep(0.01)
        os.kill(first.pid, signal.SIGKILL)
        assert first.wait(10) == -signal.SIGKILL
        half.set()
        recorded = len(Recordings(path))
        assert 0 < recorded == sum(counted.values()) <= 14
        second = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert second.stdout.strip() == "{'ok': 12}", second.stderr
        assert set(counted.values()) == {1}, "a call was made twice"
        assert len(counted) == len(Recordings(path)) == 2 + 6 + 2 * 12
        before = len(server.chats)
        third = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert third.stdout == second.stdout and len(server.chats) == before


def recorded(path, count=50):
    store = Recordings(path)
    for n in range(count):
        asked = question(f"question {n} " + "x" * 200)
        store.put(recording_key(IDENTITY, asked), key_parts(IDENTITY, asked), Reply(text=f"{n}"))
    return store


@pytest.mark.parametrize("damage", ["not a database", "a page in the middle", "half of it"])
def test_a_damaged_file_is_named_and_set_aside(tmp_path, damage):
    path = tmp_path / "replies.db"
    recorded(path).close()
    content = bytearray(path.read_bytes())
    if damage == "not a database":
        content = bytearray(b"PK\x03\x04 and so on, long enough to be read as a file" * 200)
    elif damage == "half of it":
        del content[len(content) // 2 // 4096 * 4096 :]
    else:
        content[4096 : len(content) - 4096] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(SEvalError, match=r"replies\.db.*damaged.*replies\.db\.damaged-1"):
        for _ in Recordings(path).rows():
            pass
    assert not path.exists() and (tmp_path / "replies.db.damaged-1").read_bytes() == content
    assert len(Recordings(path)) == 0


def test_a_damaged_store_fails_the_evaluator_and_not_in_silence(tmp_path):
    path = tmp_path / "replies.db"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(SEvalError, match="damaged-1"):
        SEvalEx(engine=Scripted([]), recordings=path)
    path.write_bytes(b"nor is this" * 200)
    with pytest.raises(SEvalError, match="damaged-2"):
        Recordings(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("replies.db.damaged-1", "replies.db.damaged-2"),
    ]


def test_replay_changes_nothing_on_the_disk(tmp_path):
    path = tmp_path / "replies.db"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(SEvalError, match=r"replies\.db.*damaged"):
        Replay(path)
    assert path.read_bytes() == b"this is no database" * 100
    path.unlink()
    recorded(path).close()
    before = path.read_bytes()
    Replay(path).recordings.close()
    assert path.read_bytes() == before
    with pytest.raises(SEvalError, match="readonly"):
        Replay(path).recordings.put("key", {}, Reply(text="new"))


def test_a_closed_store_is_not_taken_for_a_damaged_one(tmp_path):
    path = tmp_path / "replies.db"
    store = recorded(path)
    store.close()
    with pytest.raises(SEvalError, match="closed"):
        store.get("key")
    assert path.exists() and len(Recordings(path)) == 50
    assert not list(tmp_path.glob("*damaged*"))


def test_another_table_of_that_name_is_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE replies (author TEXT)")
    with pytest.raises(SEvalError, match=r"other\.db"):
        Recordings(path)
    assert path.exists()


def test_a_row_that_is_no_reply_is_named(tmp_path):
    path = tmp_path / "replies.db"
    store = recorded(path, 1)
    [(key, _, _)] = store.rows()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE replies SET reply = '{\"words\": 1}'")
    with pytest.raises(SEvalError, match=key):
        store.get(key)
    assert path.exists()


LOCKED_OUT = """
import os, sys
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
assert not os.access(sys.argv[1], os.W_OK)
"""


@pytest.fixture
def open_folder():
    """A folder that other users can get to; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("folder", ["writable", "read-only"])
def test_a_read_only_file(open_folder, folder):
    """It can be replayed; recording into it fails with its name, and it stays as it is."""
    home = open_folder / folder
    home.mkdir()
    path = home / "replies.db"
    recorded(path, 3).close()
    path.chmod(0o444)
    home.chmod(0o777 if folder == "writable" else 0o555)
    content = path.read_bytes()
    code = """
from seval_ex.llm import Message, Reply, Request
from seval_ex.ledger import SEvalError
from seval_ex.recordings import Recordings, Replay, key_parts, recording_key
asked = Request(messages=(Message(role="user", content="question 1 " + "x" * 200),))
assert Replay(sys.argv[1]).ask(asked).text == "1"
try:
    Recordings(sys.argv[1]).put("key", {}, Reply(text="new"))
except SEvalError as error:
    assert "replies.db" in str(error) and "readonly" in str(error), error
else:
    raise AssertionError("it was written to")
"""
    # Imported first, as another user may not be able to read this environment.
    code = f"import seval_ex.recordings, encodings.idna\n{LOCKED_OUT}{code}"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    home.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == content and not list(home.glob("*damaged*"))


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(InvalidInput, match="no folder"):
        SEvalEx(engine=Scripted([]), recordings=tmp_path / "missing" / "replies.db")


def test_export_and_import(tmp_path):
    store = Recordings(tmp_path / "a.db")
    texts = ["plain", "line\nbreak\r\u2028\u2029\x85", "“ü” 😀 \x00", '{"a": "}"}']
    for text in texts:
        asked = question(text, json_schema={"type": "object"}, think="high", logprobs=2)
        reply = Reply(text=text, thinking=text, prompt_tokens=None, cached_tokens=3, seconds=0.1)
        store.put(recording_key(IDENTITY, asked), key_parts(IDENTITY, asked), reply)
    path = tmp_path / "replies.jsonl"
    assert export_recordings(store, path) == 4
    other = Recordings(tmp_path / "b.db")
    assert import_recordings(other, path) == import_recordings(other, path) == 4
    assert list(other.rows()) == list(store.rows()) and len(other) == 4
    export_recordings(other, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        "{}",
        '{"parts": {"provider": "p"}, "reply": {"text": "x"}}',
        '{"parts": {"provider": "p", "model": "m", "digest": null, "messages": []}, "reply": 1}',
    ],
)
def test_import_names_the_line(tmp_path, line):
    store = recorded(tmp_path / "a.db", 1)
    path = tmp_path / "replies.jsonl"
    export_recordings(store, path)
    path.write_text(path.read_text("utf-8") + line + "\n", "utf-8")
    with pytest.raises(InvalidInput, match=r"replies\.jsonl, line 2"):
        import_recordings(Recordings(":memory:"), path)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("suffix", ["db", "jsonl"])
def test_replay_gives_the_same_ledgers(tmp_path, variant, suffix):
    store = Recordings(tmp_path / "replies.db")
    made = ledgers(Scripted(scripted_model), variant, store)
    assert {each.status for each in made} == {"ok"}
    path = tmp_path / f"replies.{suffix}"
    if suffix == "jsonl":
        export_recordings(store, path)
    again = ledgers(f"replay:{path}", variant, None)
    assert [each.engine for each in again] == [f"replay:{path}"] * 12
    assert [each.model_copy(update={"engine": made[0].engine}) for each in again] == made


def test_replay_of_a_reply_that_needed_more_room(tmp_path):
    """The reply that broke off was never recorded, and is not missed."""

    def script(request):
        if request.num_predict == 1024:
            return Reply(text="{", finish_reason="length")
        return scripted_model(request)

    path = tmp_path / "replies.db"
    [made, *_] = ledgers(Scripted(script), "stsum_text", path)
    [again, *_] = ledgers(f"replay:{path}", "stsum_text", None)
    assert made.status == again.status == "ok" and again.verdicts == made.verdicts


def test_replay_says_what_is_missing(tmp_path):
    path = tmp_path / "replies.db"
    evaluator = SEvalEx(engine=Scripted(scripted_model), recordings=path)
    assert evaluator.evaluate(DOCUMENTS[0], "Nobody was hurt.").status == "ok"
    before = len(Recordings(path))
    replay = SEvalEx(engine=f"replay:{path}")
    assert replay.evaluate(DOCUMENTS[0], "Nobody was hurt.").precision == 1
    ledger = replay.evaluate(DOCUMENTS[0], "The owner is unknown.")
    assert ledger.status == "llm_error" and ledger.precision is None
    assert "no recorded reply" in ledger.reason and "The owner is unknown." in ledger.reason
    assert len(Recordings(path)) == before
    with pytest.raises(ReplyMissing):
        Replay(path).ask(question("never asked"))


def test_replay_of_several_models(tmp_path):
    path = tmp_path / "replies.db"
    for name, answer in (("a", "from a"), ("b", "from b")):
        Model(Scripted([answer], name), Recordings(path)).ask(question("?"))
    with pytest.raises(InvalidInput, match=r"2 models.*PROVIDER:MODEL"):
        Replay(path)
    assert Replay(f"{path}#scripted:b").ask(question("?")).text == "from b"
    with pytest.raises(InvalidInput, match="0 models"):
        Replay(f"{path}#scripted:c")


def test_hits_and_misses():
    store = Recordings(":memory:")
    evaluator = SEvalEx(engine=Scripted(scripted_model), recordings=store)
    evaluator.evaluate(DOCUMENTS[0], "Nobody was hurt.")
    counted = store.statistics()
    assert (counted["hits"], counted["misses"], counted["replies"]) == (0, 2, 2)
    assert counted["models"] == {"scripted:scripted": 2} and counted["characters"] > 100
    evaluator.evaluate(DOCUMENTS[0], "Nobody was hurt.")
    counted = store.statistics()
    assert (counted["hits"], counted["misses"], counted["replies"]) == (2, 2, 2)


@pytest.mark.parametrize("variant", VARIANTS)
def test_workers_do_not_change_ledgers(tmp_path, variant):
    def script(body):
        found = sections(body["messages"])
        is_first = "text" in found and found["text"].endswith("Summary 0.")
        reply = ollama_reply(serving_model(body), prompt_eval_count=900)
        return Answer(reply, delay=0.03 if is_first else 0.0)

    runs, calls = [], []
    with OllamaServer(script) as server:
        for workers in (1, 4):
            before = len(server.chats)
            provider = OllamaProvider(MODEL, server.address)
            store = Recordings(tmp_path / f"{workers}.db")
            runs.append(ledgers(provider, variant, store, workers=workers))
            calls.append(sorted(json.dumps(body) for body in server.chats[before:]))
            if workers == 1:
                assert server.most_at_once == 1
        assert server.most_at_once > 1
    timeless = [[_timeless(ledger) for ledger in run] for run in runs]
    assert timeless[0] == timeless[1] and calls[0] == calls[1]
    assert [ledger.summary for ledger in runs[1]] == list(frame()["summary"])


def _timeless(ledger):
    changes = {
        name: getattr(ledger, name).model_copy(update={"seconds": 0.0})
        for name in ("usage", "source_usage")
    }
    return ledger.model_copy(update=changes)


def test_the_same_question_at_once_is_asked_once():
    entered = threading.Event()

    def script(request):
        entered.set()
        time.sleep(0.05)
        return "yes"

    scripted = Scripted(script)
    scripted._lock = threading.RLock()
    model, found = Model(scripted, Recordings(":memory:")), []
    threads = [
        threading.Thread(target=lambda: found.append(model.ask(question("?"))[1].text))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["yes"] * 8 and len(scripted.requests) == model.asked == 1


def test_failures_are_not_recorded():
    store = Recordings(":memory:")
    broken = Reply(text="{", finish_reason="length")
    model = Model(Scripted([ServerUnavailable("busy"), broken, "fine"]), store)
    for _ in range(2):
        with pytest.raises(SEvalError):
            model.ask(question("?"))
    assert len(store) == 0
    assert model.ask(question("?"))[1].text == "fine" and len(store) == 1


def test_a_copied_file_is_whole(tmp_path):
    """After close, all of it is in the one file, which can be sent to others."""
    path = tmp_path / "replies.db"
    recorded(path).close()
    copy = Path(shutil.copy(path, tmp_path / "copy.db"))
    assert len(Recordings(copy)) == 50
