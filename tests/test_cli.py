"""The command in processes of its own: exit status, streams, odd bytes, no traceback."""

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

SOURCE = "The mill burned down in May. Nobody was hurt."
SUMMARY = "The mill burned down in May. It cost 9 lives."


def command(*arguments, stdin=None, **options):
    return subprocess.run(
        [sys.executable, "-c", "from seval_ex.cli import main; main()", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        **options,
    )


@pytest.fixture
def files(tmp_path):
    (tmp_path / "source.txt").write_text(SOURCE)
    (tmp_path / "summary.txt").write_text(SUMMARY)
    return ["--source", tmp_path / "source.txt", "--summary", tmp_path / "summary.txt"]


def failure(done, code):
    """The one sentence a failing command says."""
    assert done.returncode == code, done.stderr
    text = done.stderr.decode()
    assert "Traceback" not in text
    return text


def test_score_shows_each_statement(files):
    done = command("score", *files)
    text = done.stdout.decode()
    assert done.returncode == 0 and done.stderr == b""
    assert "✓ S1 TP" in text and "✗ S2 FP" in text and "“9”" in text


def test_score_json_and_html(files, tmp_path):
    page = tmp_path / "page.html"
    done = command("score", *files, "--json", "--html", page, "--variant", "base")
    content = json.loads(done.stdout)
    assert content["scores"]["precision"] == 0.5 and content["ledger"]["variant"] == "base"
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_score_reads_standard_input(files):
    done = command("score", *files[:2], "--summary", "-", "--json", stdin=SUMMARY.encode())
    assert json.loads(done.stdout)["ledger"]["summary"] == SUMMARY
    both = command("score", "--source", "-", "--summary", "-", stdin=b"x")
    assert "standard input" in failure(both, 2)


def test_score_of_an_empty_summary_fails_and_says_why(files):
    done = command("score", *files[:2], "--summary", "-", stdin=b" \n")
    assert done.returncode == 1 and b"empty_summary" in done.stdout


def test_escape_sequences_do_not_reach_the_terminal(files):
    done = command("score", *files[:2], "--summary", "-", stdin=b"The mill \x1b[2J burned\x07.")
    assert b"\x1b[2J" not in done.stdout and b"\x07" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["score"], 2, "Missing option"),
        (["score", "--source", "nowhere", "--summary", "nowhere"], 2, "nowhere"),
        (["evaluate", "nowhere.csv", "out.csv"], 2, "nowhere.csv"),
        (["tables", "table0"], 2, "table0"),
        (["tables", "-p", "lmit=3"], 2, "lmit"),
        (["tables", "-p", "limit=many"], 2, "whole number"),
        (["tables", "-p", "limit"], 2, "NAME=VALUE"),
        (["dance"], 2, "dance"),
    ],
)
def test_wrong_use(arguments, code, says, tmp_path):
    assert says in failure(command(*arguments, cwd=tmp_path), code)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (["--engine", "oracle"], "oracle"),
        (["--threshold", "7"], "threshold"),
        (["--variant", "best"], "best"),
    ],
)
def test_wrong_options(files, option, says):
    assert says in failure(command("score", *files, *option), 2)


def test_not_utf8(files, tmp_path):
    (tmp_path / "latin.txt").write_bytes("Müller".encode("latin-1"))
    done = command("score", *files[:2], "--summary", tmp_path / "latin.txt")
    assert "UTF-8" in failure(done, 2)


def test_debug_shows_the_traceback(files):
    done = command("--debug", "score", *files, "--engine", "oracle")
    assert done.returncode != 0 and b"Traceback" in done.stderr


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_evaluate_every_format(ending, tmp_path):
    from seval_ex.datasets import read_table, write_table

    pairs = pd.DataFrame(
        {
            "name": ["a", "b", "c"],
            "document": [SOURCE, SOURCE, ""],
            "text": [SUMMARY, "", "Two\nlines, and a comma."],
        }
    )
    write_table(pairs, tmp_path / f"in.{ending}")
    columns = ["--source-column", "document", "--summary-column", "text", "--id-column", "name"]
    places = [tmp_path / f"in.{ending}", tmp_path / f"out.{ending}"]
    done = command("evaluate", *places, *columns, "--ledgers", tmp_path / "ledgers.jsonl")
    assert done.returncode == 0, done.stderr
    assert b"1 ok" in done.stdout and b"over 1 pairs" in done.stdout
    result = read_table(tmp_path / f"out.{ending}", source="document", summary="text")
    assert result["summary"].tolist() == pairs["text"].tolist()
    assert result["status"].tolist() == ["ok", "empty_summary", "empty_source"]
    assert result["precision"].isna().tolist() == [False, True, True]
    ledgers = [json.loads(line) for line in (tmp_path / "ledgers.jsonl").read_text().splitlines()]
    assert [ledger["id"] for ledger in ledgers] == ["a", "b", "c"]


def test_evaluate_says_which_column_is_missing(tmp_path):
    (tmp_path / "in.csv").write_text("article,summary\na,b\n")
    text = failure(command("evaluate", tmp_path / "in.csv", tmp_path / "out.csv"), 2)
    assert "source" in text and "article" in text and not (tmp_path / "out.csv").exists()


def test_evaluate_fails_when_no_pair_has_a_score(tmp_path):
    (tmp_path / "in.csv").write_text("source,summary\na.,\nb.,\n")
    done = command("evaluate", tmp_path / "in.csv", tmp_path / "out.csv")
    assert "no pair" in failure(done, 1) and (tmp_path / "out.csv").exists()


def test_killed_runs_leave_no_half_file(tmp_path):
    rows = "".join(f'"{SOURCE * 20} {n}","{SUMMARY} {n}"\n' for n in range(4000))
    (tmp_path / "in.csv").write_text("source,summary\n" + rows)
    (tmp_path / "out.csv").write_text("what was there")
    arguments = ["evaluate", str(tmp_path / "in.csv"), str(tmp_path / "out.csv")]
    process = subprocess.Popen(
        [sys.executable, "-c", "from seval_ex.cli import main; main()", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(1.5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (tmp_path / "out.csv").read_text() == "what was there"


def test_two_runs_into_one_file(tmp_path):
    (tmp_path / "in.csv").write_text(f"source,summary\n{SOURCE},{SUMMARY}\n")
    call = [sys.executable, "-c", "from seval_ex.cli import main; main()", "evaluate"]
    places = [str(tmp_path / "in.csv"), str(tmp_path / "out.csv")]
    runs = [subprocess.Popen([*call, *places], stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [run.wait() for run in runs] == [0, 0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]
    assert len(pd.read_csv(tmp_path / "out.csv")) == 1


def test_outputs_are_checked_before_any_work(tmp_path):
    table = tmp_path / "in.csv"
    table.write_text("source,summary\na.,b.\n")
    for arguments in (
        [table, tmp_path / "out.xls"],
        [table, tmp_path / "no" / "out.csv"],
        [table, table],
        [table, tmp_path / "same.jsonl", "--ledgers", tmp_path / "same.jsonl"],
        [table, tmp_path / "out.csv", "--ledgers", tmp_path / "no" / "l.jsonl"],
        [table, tmp_path / "out.csv", "--id-column", "name"],
    ):
        failure(command("evaluate", *arguments), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_pipes_stay_pipes_and_links_stay_links(tmp_path):
    (tmp_path / "in.csv").write_text("source,summary\na b.,a b.\n")
    (tmp_path / "target.jsonl").write_text("")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "target.jsonl")
    os.mkfifo(tmp_path / "pipe.csv")
    read = subprocess.Popen(["cat", tmp_path / "pipe.csv"], stdout=subprocess.PIPE)
    places = [tmp_path / "in.csv", tmp_path / "pipe.csv"]
    done = command("evaluate", *places, "--ledgers", tmp_path / "link.jsonl")
    assert done.returncode == 0, done.stderr
    assert read.communicate()[0].startswith(b'"source","summary","precision"')
    assert (tmp_path / "pipe.csv").is_fifo() and (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "target.jsonl").read_text().count("\n") == 1


def test_a_scored_table_can_be_scored_again_and_keeps_its_columns(tmp_path):
    (tmp_path / "in.csv").write_text("source,summary,score,id\na b.,a b.,1.50,007\na b.,c.,,\n")
    assert command("evaluate", tmp_path / "in.csv", tmp_path / "a.csv").returncode == 0
    again = command("evaluate", tmp_path / "a.csv", tmp_path / "b.csv", "--prefix", "b_")
    assert again.returncode == 0, again.stderr
    first, second = (tmp_path / "b.csv").read_text().splitlines()[1:]
    assert first.startswith('"a b.","a b.","1.50","007",')
    assert second.startswith('"a b.","c.","","",')


def test_hallucinate_takes_half_characters(tmp_path):
    line = (
        '{"source": "\\ud800 It sold 10 boats on Monday.", "summary": "It sold 10 \\udfff boats."}'
    )
    (tmp_path / "in.jsonl").write_text(line)
    done = command("hallucinate", tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out.jsonl").read_text("utf-8"))["summary"][11] == "\ufffd"


def test_a_missing_library_is_named_before_any_work(files, tmp_path):
    (tmp_path / "in.csv").write_text(f"source,summary\n{SOURCE},{SUMMARY}\n")
    hide = "import sys; sys.modules['pyarrow'] = None; sys.argv[0] = 'seval-ex'; "
    hide += "import seval_ex.pipeline as p; p.evaluate_pairs = None; "
    places = [str(tmp_path / "in.csv"), str(tmp_path / "out.parquet")]
    run = [sys.executable, "-c", hide + "from seval_ex.cli import main; main()", "evaluate"]
    done = subprocess.run([*run, *places], capture_output=True)
    assert "pip install 'seval_ex[parquet]'" in failure(done, 2)


def test_a_reader_that_has_enough_is_no_error():
    code = "from seval_ex.cli import main; main()"
    command = [sys.executable, "-c", code, "tables", "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read().decode()
    assert said == ""
