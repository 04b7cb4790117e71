"""How a run shows its progress, and what an interrupt leaves: processes, a terminal, a kernel."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import redirect_stderr
from io import StringIO

import pandas as pd
import pytest
from servers import MODEL, Answer, OllamaServer, serving_model

import seval_ex.pipeline
from seval_ex import SEvalEx
from seval_ex.ledger import Status
from seval_ex.llm import Message, Request, Scripted
from seval_ex.pipeline import Progress, evaluate_pairs
from seval_ex.prompting import Stopped, ask_json, stoppable
from seval_ex.recordings import Model, Recordings

pytest.importorskip("ollama")

COMMAND = "from seval_ex.cli import main; main()"
OFTEN = f"import seval_ex.pipeline as p; p.LOG_SECONDS = 0; {COMMAND}"
PAIRS = 8


@pytest.fixture
def table(tmp_path):
    rows = [{"source": f"It rained on day {n}.", "summary": f"Day {n}."} for n in range(PAIRS)]
    pd.DataFrame(rows).to_csv(tmp_path / "in.csv", index=False)
    return tmp_path


def environment(server):
    return {**os.environ, "OLLAMA_HOST": server.address}


def arguments(workers=1):
    engine = ["--engine", f"ollama:{MODEL}", "--workers", str(workers)]
    return ["evaluate", "in.csv", "out.csv", *engine]


def slow_model(seconds):
    """Answer the first four calls at once and the others after so many seconds."""
    calls, lock = [], threading.Lock()

    def answer(body):
        with lock:
            calls.append(body)
            delay = seconds if len(calls) > 4 else 0
        return Answer(server.reply(body, serving_model(body)), delay=delay)

    server = OllamaServer(answer)
    return server


def interrupted(table, server, code, calls, **options):
    """Start a process, interrupt it when the server got so many calls, and wait for its end."""
    process = subprocess.Popen(
        [sys.executable, "-c", *code],
        cwd=table,
        env=environment(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    deadline = time.monotonic() + 20
    while len(server.chats) < calls and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(server.chats) >= calls, process.communicate(timeout=5)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err, time.monotonic() - start


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupted_command_ends_at_once_and_resumes(table, workers):
    with slow_model(20) as server:
        code = [COMMAND, *arguments(workers)]
        status, out, err, seconds = interrupted(table, server, code, 4 + workers)
        assert status == 130 and seconds < 10
        assert re.fullmatch(
            r"seval-ex: interrupted after \d of 8 pairs; the replies so far are kept in "
            r"'recordings\.db': run the same again to go on\n",
            err,
        )
        assert out == "" and not (table / "out.csv").exists()
    kept = len(Recordings(table / "recordings.db"))
    assert kept == 4
    with OllamaServer(serving_model) as server:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *arguments(workers)],
            cwd=table,
            env=environment(server),
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"{PAIRS} pairs: {PAIRS} ok" in done.stdout
        assert len(server.chats) == 2 * PAIRS - kept


def test_in_python_the_interrupt_stays_one(table):
    code = (
        "import pandas as pd\nfrom seval_ex import SEvalEx\n"
        f"evaluator = SEvalEx(engine='ollama:{MODEL}')\n"
        "try: evaluator.evaluate_many(pd.read_csv('in.csv'), workers=2)\n"
        "except KeyboardInterrupt as stopped: print(stopped); raise SystemExit(7)"
    )
    with slow_model(20) as server:
        status, out, err, seconds = interrupted(table, server, [code], 6)
    assert (status, err) == (7, "") and seconds < 10
    assert re.match(r"interrupted after \d of 8 pairs; the replies so far are kept", out)


def test_an_interrupt_elsewhere_in_the_command_is_told_too(table):
    stop = "def stop(*_): os.kill(os.getpid(), signal.SIGINT)"
    code = f"import os, signal, seval_ex.pipeline as p\n{stop}\np.mean_scores = stop\n{COMMAND}"
    done = subprocess.run(
        [sys.executable, "-c", code, "evaluate", "in.csv", "out.csv"],
        cwd=table,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130
    assert done.stderr == (
        "seval-ex: interrupted; what was recorded is kept: run the same command again to go on\n"
    )


# Stopping workers


class Blocking:
    """A verifier that lets the first pair pass and makes the others wait."""

    def __init__(self, fails_at=0):
        self.lock, self.go_on = threading.Lock(), threading.Event()
        self.count, self.fails_at = 0, fails_at

    def verify(self, statements, against):
        with self.lock:
            self.count += 1
            mine = self.count
        if mine == self.fails_at:
            raise KeyboardInterrupt
        if mine > 1:
            self.go_on.wait(10)
        return []


PAIR = ("It rained.", "It rained.")


def test_after_an_interrupt_no_more_pairs_are_handed_out():
    verifier = Blocking(fails_at=3)
    with pytest.raises(KeyboardInterrupt, match=r"interrupted after \d of 50 pairs"):
        list(evaluate_pairs(SEvalEx(verifier=verifier), [PAIR] * 50, workers=3, progress=False))
    verifier.go_on.set()
    time.sleep(0.3)
    assert 3 <= verifier.count <= 5  # one that was just handed out may still begin


def test_leaving_the_loop_early_stops_the_workers():
    verifier = Blocking()
    evaluator = SEvalEx(verifier=verifier)
    found = evaluate_pairs(evaluator, [PAIR] * 500, workers=2, progress=False)
    assert next(found).status is Status.OK
    found.close()
    verifier.go_on.set()
    time.sleep(0.3)
    assert verifier.count <= 3


def test_no_call_begins_once_stopped():
    asked = []
    model = Model(Scripted(lambda request: asked.append(1) or "{}"))
    request = Request(messages=(Message(role="user", content="?"),))
    stop = threading.Event()
    with stoppable(stop):
        ask_json(model, request, lambda value: value)
        stop.set()
        with pytest.raises(Stopped, match="interrupted before this call"):
            ask_json(model, request, lambda value: value)
    assert asked == [1]
    ask_json(model, request, lambda value: value)
    assert asked == [1, 1]


def test_without_recordings_the_message_promises_nothing():
    def impatient(request):
        raise KeyboardInterrupt

    for recordings, words in (
        (None, r"no reply was kept \(recordings=None\)"),
        (Recordings(":memory:"), "kept in ':memory:'"),
    ):
        evaluator = SEvalEx(engine=Scripted(impatient), recordings=recordings)
        with pytest.raises(KeyboardInterrupt, match=words):
            evaluator.evaluate_many([{"source": "a", "summary": "b"}], progress=False)


# Logs and bars


def test_a_pipe_gets_lines_and_no_carriage_returns(table):
    with OllamaServer(serving_model) as server:
        done = subprocess.run(
            [sys.executable, "-c", OFTEN, *arguments(2)],
            cwd=table,
            env=environment(server),
            capture_output=True,
            check=True,
        )
    lines = done.stderr.decode().splitlines()
    assert b"\r" not in done.stderr and b"\r" not in done.stdout
    assert len(lines) == PAIRS
    pattern = r"seval-ex: (\d) of 8 pairs; 0 failed, [\d,]+ tokens; [\d:]+ gone(, [\d:]+ to go)?"
    assert [int(re.fullmatch(pattern, line)[1]) for line in lines] == [*range(1, 9)]


def test_a_short_run_says_nothing_in_a_log(table):
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "evaluate", "in.csv", "out.csv"],
        cwd=table,
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""


def read_terminal(ours):
    """Read what a process writes to its terminal until it closes it."""
    shown = b""
    while select.select([ours], [], [], 20)[0]:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    return shown.decode()


def test_a_terminal_gets_a_bar_with_failures_and_tokens(table):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))

    def refusing(body):
        no = Answer({"error": "no"}, 400)
        return no if "day 3" in str(body) else serving_model(body)

    with OllamaServer(refusing) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments()],
            cwd=table,
            env={**environment(server), "TQDM_MININTERVAL": "0"},
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
        os.close(theirs)
        text = read_terminal(ours)
        assert process.wait(10) == 0
    assert "\r" in text and re.search(r"\d+%\|", text)
    assert re.search(r"8/8 \[.*1 failed, [\d,]+ tokens\]", text)
    assert re.search(r"<\d\d:\d\d", text)


def test_lines_come_no_more_often_than_said(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(seval_ex.pipeline.time, "monotonic", lambda: now[0])
    with redirect_stderr(StringIO()) as log, Progress(1000, "row") as shown:
        for _ in range(10):
            now[0] += 10
            shown.advance(100, "2 failed")
    assert log.getvalue().splitlines() == [
        "seval-ex: 300 of 1,000 rows; 2 failed; 00:30 gone, 01:10 to go",
        "seval-ex: 600 of 1,000 rows; 2 failed; 01:00 gone, 00:40 to go",
        "seval-ex: 900 of 1,000 rows; 2 failed; 01:30 gone, 00:10 to go",
        "seval-ex: 1,000 of 1,000 rows; 2 failed; 01:40 gone",
    ]


def test_the_time_left_forgets_what_was_recorded(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(seval_ex.pipeline.time, "monotonic", lambda: now[0])
    with redirect_stderr(StringIO()) as log, Progress(1000) as shown:
        for seconds, count in ((30, 900), (30, 10)):
            now[0] += seconds
            shown.advance(count)
    assert (
        log.getvalue().splitlines()[-1] == "seval-ex: 910 of 1,000 pairs; 01:00 gone, 04:30 to go"
    )


def test_nothing_is_shown_when_not_wanted_or_without_a_stream(monkeypatch):
    with redirect_stderr(StringIO()) as log, Progress(1, is_shown=False) as shown:
        shown.advance()
    assert shown.done == 1 and not log.getvalue()
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(1) as shown:
        shown.advance()


def test_an_executed_notebook_gets_lines(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    cells = [
        "import seval_ex.pipeline as pipeline\npipeline.LOG_SECONDS = 0\n"
        "from seval_ex import SEvalEx\n"
        "pairs = [{'source': 'It rained.', 'summary': 'It rained.'}] * 3\n"
        "run = list(SEvalEx().evaluate_pairs(pairs))",
        "pipeline.LOG_SECONDS = 30\nrun = list(SEvalEx().evaluate_pairs(pairs))",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    options = {"kernel_name": "python3", "shutdown_kernel": "immediate"}
    NotebookClient(book, resources={"metadata": {"path": tmp_path}}, **options).execute()
    lively, quiet = (cell.outputs for cell in book.cells)
    assert {output.output_type for output in lively} == {"stream"}
    text = "".join(output.text for output in lively)
    assert "\r" not in text and "3 of 3 pairs; 0 failed; " in text
    assert not quiet


def test_a_front_end_gets_the_bar(monkeypatch):
    from types import SimpleNamespace

    shell = SimpleNamespace(kernel=SimpleNamespace(_allow_stdin=True))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert seval_ex.pipeline.is_watched()
    shell.kernel._allow_stdin = False
    assert not seval_ex.pipeline.is_watched()


def test_committed_notebooks_hold_no_progress(root):
    noise = re.compile(r"\d+%\|[ █▏▎▍▌▋▊▉#]|\d+ of [\d,]+ (pair|row)s; \d+ failed|it/s\]|pair/s")
    for path in [*(root / "nbs").glob("*.ipynb"), *(root / "nbs/tables").glob("*.ipynb")]:
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                if output.get("name") == "stderr" or "widget" in json.dumps(output)[:2000]:
                    assert not noise.search(json.dumps(output, ensure_ascii=False)), path.name
