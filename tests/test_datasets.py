"""Files as people have them: whole, cut off, misnamed, mistyped, and the two real files."""

import gzip
import json
import math
import os
import subprocess
import sys
import textwrap
import types
import warnings
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seval_ex.datasets import (
    RATINGS,
    DataError,
    find_summeval,
    load_sample,
    load_summeval,
    read_table,
    write_table,
)
from seval_ex.ledger import SEvalError

ENDINGS = ["csv", "tsv", "jsonl", "ndjson", "parquet", "csv.gz", "tsv.gz", "jsonl.gz", "ndjson.gz"]
SUMMEVAL_COLUMNS = ["id", "system", "source", "summary", "reference", "references", *RATINGS]


def document(number: int = 1, **changes) -> dict:
    """Make a document with two summaries in the hub's shape."""
    return {
        "id": f"doc-{number}",
        "text": f"Source {number}.",
        "machine_summaries": [f"First of {number}.", f"Second of {number}."],
        "human_summaries": [f"Reference {number}.", f"Other reference {number}."],
        "fluency": [5, 4.5],
        "consistency": [4.25, 1],
        "coherence": [3, 2],
        "relevance": [2.5, 5.0],
    } | changes


def rated(*values: object) -> list[dict]:
    """Make annotations that rate all dimensions alike."""
    return [dict.fromkeys(RATINGS, value) for value in values]


def released(system: str = "M8", **changes) -> dict:
    """Make a summary in the original release's format."""
    return {
        "id": "doc-1",
        "decoded": f"Summary by {system}.",
        "expert_annotations": rated(1, 2, 5),
        "turker_annotations": rated(4, 4, 3, 5, 4),
        "references": ["Reference 1.", "Other reference 1."],
        "model_id": system,
        "filepath": "stories/1.story",
        "text": "Source 1.",
    } | changes


def without(record: dict, *names: str) -> dict:
    return {name: value for name, value in record.items() if name not in names}


@pytest.fixture(autouse=True)
def no_environment(request, monkeypatch):
    """Keep a set SEVAL_EX_DATA out of all tests but those that ask for the real files."""
    if "real_data" not in request.fixturenames:
        monkeypatch.delenv("SEVAL_EX_DATA", raising=False)


@pytest.fixture
def lines(tmp_path):
    """Write records, or lines as they are, to a file and return its path."""

    def write(*records: object, name: str = "summeval.jsonl") -> Path:
        texts = [each if isinstance(each, str) else json.dumps(each) for each in records]
        content = "\n".join(texts).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def complaint(call, *arguments, **options) -> str:
    with pytest.raises(DataError) as caught:
        call(*arguments, **options)
    return str(caught.value)


# ---------------------------------------------------------------- SummEval: the shapes


def test_hub_shape_names_systems_by_position(lines):
    frame = load_summeval(lines(document(1), document(2)))
    assert list(frame.columns) == SUMMEVAL_COLUMNS
    assert list(frame["id"]) == ["doc-1", "doc-1", "doc-2", "doc-2"]
    assert list(frame["system"]) == ["S01", "S02", "S01", "S02"]
    assert frame.loc[3, "summary"] == "Second of 2."
    assert frame.loc[0, "source"] == "Source 1."
    assert frame.loc[0, "reference"] == "Reference 1."
    assert frame.loc[0, "references"] == ("Reference 1.", "Other reference 1.")
    assert list(frame["consistency"]) == [4.25, 1.0, 4.25, 1.0]
    assert all(frame[name].dtype == float for name in RATINGS)


def test_hub_shape_with_names_and_reference(lines):
    path = lines(document(1, systems=["M0", "M22"], reference="Given."), name="summeval.jsonl.gz")
    frame = load_summeval(str(path))
    assert list(frame["system"]) == ["M0", "M22"]
    assert set(frame["reference"]) == {"Given."}
    assert frame.loc[0, "references"] == ("Reference 1.", "Other reference 1.")


def test_sixteen_systems_are_named_in_two_digits(lines):
    many = {
        name: [3.0] * 16 if name in RATINGS else [f"Text {n}." for n in range(16)]
        for name in ("machine_summaries", *RATINGS)
    }
    assert list(load_summeval(lines(document(1, **many)))["system"])[::15] == ["S01", "S16"]


def test_null_systems_and_null_reference_count_as_none_given(lines):
    frame = load_summeval(lines(document(1, systems=None, reference=None)))
    assert list(frame["system"]) == ["S01", "S02"]
    assert frame.loc[0, "reference"] == "Reference 1."


def test_without_references_the_reference_is_none(lines):
    frame = load_summeval(lines(document(1, human_summaries=[])))
    assert frame.loc[0, "reference"] is None
    assert frame.loc[0, "references"] == ()


@pytest.mark.parametrize(("annotators", "mean"), [("expert", 8 / 3), ("turker", 4.0)])
def test_original_release(lines, annotators, mean):
    path = lines(released("M8"), released("M22"), name="model_annotations.aligned.paired.jsonl.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = load_summeval(path, annotators=annotators)
    assert list(frame.columns) == SUMMEVAL_COLUMNS
    assert list(frame["system"]) == ["M8", "M22"]
    assert frame.loc[1, "summary"] == "Summary by M22."
    assert frame.loc[0, "source"] == "Source 1."
    assert frame.loc[0, "reference"] == "Reference 1."
    assert [frame.loc[0, name] for name in RATINGS] == [pytest.approx(mean)] * 4


@pytest.mark.parametrize("record", [without(released(), "text"), released(text=None)])
def test_release_without_articles_warns_and_has_no_source(lines, record):
    path = lines(record, released("M22"))
    with pytest.warns(UserWarning, match=r"1 of 2 summaries have no source.*pair_data\.py") as seen:
        frame = load_summeval(path)
    assert seen[0].filename == __file__
    assert frame.loc[0, "source"] is None
    assert frame.loc[1, "source"] == "Source 1."


def test_hub_shape_has_no_turkers(lines):
    message = complaint(load_summeval, lines(document()), annotators="turker")
    assert "line 1: this shape holds the experts' mean ratings only" in message
    assert "model_annotations.aligned.paired.jsonl" in message


def test_unknown_annotators(lines):
    assert "neither 'expert' nor 'turker'" in complaint(
        load_summeval, lines(released()), annotators="crowd"
    )


def test_gzip_and_shape_are_told_by_content_not_by_name(tmp_path, lines):
    zipped = tmp_path / "really_gzip.jsonl"
    zipped.write_bytes(gzip.compress(json.dumps(document()).encode()))
    assert len(load_summeval(zipped)) == 2
    plain = tmp_path / "really_plain.jsonl.gz"
    plain.write_text(json.dumps(released()))
    assert len(load_summeval(plain)) == 1


def test_parquet_as_the_hub_offers_it(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "test-00000-of-00001.parquet"
    pd.DataFrame([document(1), document(2)]).to_parquet(path)
    assert list(load_summeval(path)["system"]) == ["S01", "S02", "S01", "S02"]
    pd.DataFrame([document(1)])[:0].to_parquet(path)
    assert f"{path}: is empty" in complaint(load_summeval, path)
    pd.DataFrame([document(1, fluency=[5, 9])]).to_parquet(path)
    assert f"{path}, row 1: fluency is 9" in complaint(load_summeval, path)


def test_blank_lines_byte_order_mark_windows_line_ends_and_line_separators(tmp_path):
    path = tmp_path / "summeval.jsonl"
    texts = [json.dumps(document(n, text=f"a\u2028b\x85c{n}"), ensure_ascii=False) for n in (1, 2)]
    path.write_bytes(b"\xef\xbb\xbf\r\n" + "\r\n \r\n".join(texts).encode() + b"\r\n\r\n")
    assert load_summeval(path).loc[3, "source"] == "a\u2028b\x85c2"


# ---------------------------------------------------------------- SummEval: what can be wrong


def test_missing_file_folder_and_empty_file(tmp_path):
    gone = tmp_path / "gone.jsonl"
    assert complaint(load_summeval, gone) == f"{gone}: there is no such file; check the path"
    assert complaint(load_summeval, tmp_path).startswith(f"{tmp_path}: is a folder")
    for content in (b"", b"\n \n", b"\xef\xbb\xbf", gzip.compress(b"")):
        gone.write_bytes(content)
        assert f"{gone}: is empty" in complaint(load_summeval, gone)


def test_file_that_cannot_be_read(lines, monkeypatch):
    path = lines(document())

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    message = complaint(load_summeval, path)
    assert "can't be read" in message
    assert "Permission denied" in message


@pytest.mark.parametrize("cut", [2, 5, 12, -1, -9, -20])
def test_truncated_gzip(tmp_path, cut):
    path = tmp_path / "summeval.jsonl.gz"
    content = "\n".join(json.dumps(document(n)) for n in range(200)).encode()
    path.write_bytes(gzip.compress(content)[:cut])
    message = complaint(load_summeval, path)
    assert message.startswith(f"{path}: gzip is cut off or damaged")
    assert "get it again" in message


@pytest.mark.parametrize("place", [2, 15, -6, -2])
def test_corrupt_gzip(tmp_path, place):
    path = tmp_path / "summeval.jsonl.gz"
    content = bytearray(gzip.compress(json.dumps(document()).encode()))
    content[place] ^= 0xFF
    path.write_bytes(content)
    assert "gzip is cut off or damaged" in complaint(load_summeval, path)


def test_gzip_with_a_damaged_start(tmp_path):
    path = tmp_path / "summeval.jsonl.gz"
    path.write_bytes(b"\x00" + gzip.compress(json.dumps(document()).encode())[1:])
    assert "the file is not gzip, as its name says" in complaint(load_summeval, path)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"id": "doc-2", ', "invalid JSON at column"),
        ("{'id': 'doc-2'}", "invalid JSON at column 2"),
        ('{"id": 1} {"id": 2}', "invalid JSON at column 11 (Extra data)"),
        ("[1, 2]", "holds a list, not an object"),
        ('"text"', "holds a str, not an object"),
        ("null", "holds a NoneType, not an object"),
        ("[" * 100_000, "JSON"),
        ('{"n": ' + "9" * 5000 + "}", "JSON beyond Python's limits"),
    ],
)
def test_lines_that_are_no_objects(lines, line, fault):
    path = lines(document(1), "", line)
    message = complaint(load_summeval, path)
    assert message.startswith(f"{path}, line 3: ")
    assert fault in message


@pytest.mark.parametrize("zipped", [False, True])
def test_bytes_that_are_not_utf8(tmp_path, zipped):
    path = tmp_path / "summeval.jsonl"
    content = b"\xef\xbb\xbf" + json.dumps(document()).encode() + b'\n\n{"id": "caf\xe9"}\n'
    path.write_bytes(gzip.compress(content) if zipped else content)
    assert f"{path}, line 3: byte 0xe9 is not UTF-8; save" in complaint(load_summeval, path)


@pytest.mark.parametrize("column", ["id", "text", "machine_summaries", "human_summaries", *RATINGS])
def test_hub_shape_without_a_column(lines, column):
    path = lines(document(1), without(document(2), column))
    message = complaint(load_summeval, path)
    assert message.startswith(f"{path}, line 2: no column {column!r}; columns there: ")
    assert "fluency" in message or column == "fluency"


@pytest.mark.parametrize(
    "column", ["id", "decoded", "expert_annotations", "references", "model_id"]
)
def test_release_without_a_column(lines, column):
    path = lines(released("M8"), without(released("M9"), column))
    assert f"line 2: no column {column!r}; columns there: " in complaint(load_summeval, path)


def test_release_without_turkers(lines):
    path = lines(without(released(), "turker_annotations"))
    assert len(load_summeval(path)) == 1
    assert "no column 'turker_annotations'" in complaint(load_summeval, path, annotators="turker")


def test_neither_shape(lines):
    message = complaint(load_summeval, lines({"article": "A.", "summary": "B."}))
    assert "line 1: neither shape of SummEval" in message
    assert "columns there: article, summary" in message
    assert "read_table" in message


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"machine_summaries": []}, "no machine_summaries"),
        ({"machine_summaries": ["One."]}, "1 machine_summaries but 2 "),
        ({"fluency": [5]}, "2 machine_summaries but 1 fluency"),
        ({"relevance": [5, 5, 5]}, "2 machine_summaries but 3 relevance"),
        ({"systems": ["M0"]}, "2 machine_summaries but 1 systems"),
        ({"machine_summaries": "One."}, "machine_summaries is 'One.', not a list"),
        ({"machine_summaries": ["One.", None]}, "an item of machine_summaries is None, not text"),
        ({"systems": ["M0", 1]}, "an item of systems is 1, not text"),
        ({"human_summaries": None}, "human_summaries is None, not a list"),
        ({"text": None}, "text is None, not text"),
        ({"reference": 3}, "reference is 3, not text"),
        ({"id": 2}, "id is 2, not text"),
        ({"coherence": 3.0}, "coherence is 3.0, not a list"),
    ],
)
def test_documents_that_do_not_add_up(lines, changes, fault):
    path = lines(document(1), document(2, **changes))
    message = complaint(load_summeval, path)
    assert message.startswith(f"{path}, line 2: ")
    assert fault in message
    assert "; " in message


def test_unnamed_systems_must_be_as_many_in_each_document(lines):
    one = {name: [3] for name in RATINGS} | {"machine_summaries": ["One."]}
    path = lines(document(1), document(2, **one))
    message = complaint(load_summeval, path)
    assert f"{path}, line 2: 1 machine_summaries but 2 at {path}, line 1" in message
    named = lines(document(1, systems=["M0", "M1"]), document(2, systems=["M0"], **one))
    assert len(load_summeval(named)) == 3


@pytest.mark.parametrize(
    "rating", ["4", "", None, True, [4], 0, 0.99, 5.01, -1, math.nan, math.inf]
)
def test_ratings_off_the_scale(lines, rating):
    message = complaint(load_summeval, lines(document(1), document(2, consistency=[5, rating])))
    assert "line 2: consistency is" in message
    assert "not a number from 1 to 5" in message
    path = lines(released("M8"), released("M9", expert_annotations=rated(3, rating)))
    message = complaint(load_summeval, path)
    assert "line 2, number 2 of expert_annotations: fluency is" in message


@pytest.mark.parametrize(
    ("annotations", "fault"),
    [
        ([], "expert_annotations is empty"),
        ({"fluency": 3}, "expert_annotations is {'fluency': 3}, not a list"),
        ([3, 4], "the annotation is 3, not an object"),
        ([{"fluency": 3}], "no column 'consistency'; columns there: fluency"),
    ],
)
def test_annotations_of_the_wrong_form(lines, annotations, fault):
    path = lines(released("M8"), released("M9", expert_annotations=annotations))
    message = complaint(load_summeval, path)
    assert message.startswith(f"{path}, line 2")
    assert fault in message


@pytest.mark.parametrize(
    ("records", "system"),
    [
        ([document(1), document(2), document(1)], "S01"),
        ([released("M8"), released("M9"), released("M8")], "M8"),
    ],
)
def test_duplicates_name_both_lines(lines, records, system):
    path = lines(*records)
    message = complaint(load_summeval, path)
    assert message.startswith(f"{path}, line 3: id 'doc-1' with system {system!r}")
    assert f"at {path}, line 1 already" in message


def test_duplicate_within_a_document(lines):
    message = complaint(load_summeval, lines(document(1, systems=["M0", "M0"])))
    assert "line 1: id 'doc-1' with system 'M0'" in message


def test_one_id_over_several_lines(lines):
    first, second = document(1, systems=["M0", "M1"]), document(1, systems=["M2", "M3"])
    assert len(load_summeval(lines(first, second))) == 4
    message = complaint(load_summeval, lines(first, second | {"text": "Another."}))
    assert "line 2: id 'doc-1' has another source at" in message
    assert "line 1" in message
    path = lines(released("M8"), released("M9", text="Another."))
    assert "line 2: id 'doc-1' has another source" in complaint(load_summeval, path)


def test_errors_have_the_package_base_and_are_value_errors():
    assert issubclass(DataError, SEvalError)
    assert issubclass(DataError, ValueError)


# ---------------------------------------------------------------- SummEval: where it comes from


def test_find_summeval(tmp_path, monkeypatch):
    assert find_summeval() is None
    monkeypatch.setenv("SEVAL_EX_DATA", str(tmp_path))
    assert find_summeval() is None
    path = tmp_path / "summeval" / "summeval_16systems.jsonl.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(json.dumps(document(7)).encode()))
    assert find_summeval() == path
    assert set(load_summeval()["id"]) == {"doc-7"}
    monkeypatch.setenv("SEVAL_EX_DATA", "")
    assert find_summeval() is None


def fake_hub(monkeypatch, answer):
    """Put a stand-in for the library `datasets` in its place; return the names it was asked for."""
    asked = []

    def load_dataset(name):
        asked.append(name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


def test_without_a_file_the_hub_is_asked(monkeypatch):
    asked = fake_hub(monkeypatch, {"train": [], "test": [document(1), document(2)]})
    assert len(load_summeval()) == 4
    load_summeval(dataset="someone/summeval")
    assert asked == ["mteb/summeval", "someone/summeval"]


def test_hub_rows_are_named_in_errors(monkeypatch):
    fake_hub(monkeypatch, {"test": [document(1), document(2, fluency=[0, 0])]})
    message = complaint(load_summeval)
    assert message.startswith("dataset 'mteb/summeval', split 'test', row 2: fluency is 0")
    assert "split 'test', row 1: this shape" in complaint(load_summeval, annotators="turker")


def test_hub_with_one_or_several_other_splits(monkeypatch):
    fake_hub(monkeypatch, {"train": [document(1)]})
    assert len(load_summeval()) == 2
    fake_hub(monkeypatch, {"train": [document(1)], "dev": [document(2)]})
    assert "no split 'test' among ['train', 'dev']" in complaint(load_summeval)


def test_empty_hub_data_set(monkeypatch):
    fake_hub(monkeypatch, {"test": []})
    assert "is empty" in complaint(load_summeval)


def test_hub_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = complaint(load_summeval)
    assert "pip install 'seval_ex[hub]'" in message
    assert "pass its path" in message


@pytest.mark.parametrize(
    "error", [ConnectionError("no route"), FileNotFoundError("no such set"), RuntimeError("quota")]
)
def test_hub_fails(monkeypatch, error):
    fake_hub(monkeypatch, error)
    message = complaint(load_summeval)
    assert f"can't be loaded ({type(error).__name__}: {error})" in message
    assert "pass its path" in message


def offline(code: str, folder: Path) -> str:
    """Run code in a new process whose hub is offline and caches in a folder."""
    environment = without(dict(os.environ), "SEVAL_EX_DATA")
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_real_library_loads_a_local_folder(tmp_path):
    pytest.importorskip("datasets", reason="the library datasets is not installed")
    folder = tmp_path / "own_summeval"
    folder.mkdir()
    (folder / "test.jsonl").write_text("\n".join(json.dumps(document(n)) for n in (1, 2)))
    code = f"""
    from seval_ex.datasets import load_summeval
    frame = load_summeval(dataset={str(folder)!r})
    print("loaded", len(frame), list(frame["system"]), type(frame.loc[0, "references"]).__name__)
    """
    assert "loaded 4 ['S01', 'S02', 'S01', 'S02'] tuple" in offline(code, tmp_path)


def test_real_library_without_a_network(tmp_path):
    pytest.importorskip("datasets", reason="the library datasets is not installed")
    code = """
    from seval_ex.datasets import DataError, load_summeval
    try:
        load_summeval()
    except DataError as error:
        print(error)
    """
    message = offline(code, tmp_path)
    assert "dataset 'mteb/summeval': can't be loaded" in message
    assert "pass its path" in message


def test_import_is_light():
    code = "import sys, seval_ex.datasets; print({'pandas', 'datasets'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---------------------------------------------------------------- your own tables: reading


def table(tmp_path: Path, content: str | bytes, name: str = "own.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def nasty_frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": ["007", "NA", "null", "None"],
            "system": ["1.0", "True", "nan", " "],
            "source": ["one\r\ntwo", "lone\rreturn", 'quote " comma ,', "tab\tnul\0"],
            "summary": ["", "\n", '"', "\ufeffmark \u2028 \x85 \x1c"],
            "reference": ["NA", "007", "-0", "=1+1"],
            "words": [1, 2, -3, 2**60],
            "score": [0.1, 1e-9, math.inf, -1e300],
        }
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_returns_what_was_written(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    frame = nasty_frame()
    if ending.startswith(("jsonl", "ndjson")):
        frame["score"] = [0.1, 1e-9, None, -1e300]
    path = tmp_path / f"own.{ending}"
    write_table(frame, path)
    back = read_table(path)
    assert list(back.columns) == list(frame.columns)
    pd.testing.assert_frame_equal(back, frame.astype(back.dtypes.to_dict()), check_exact=True)
    assert back["words"].dtype == "int64"
    assert back["score"].dtype == "float64"
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == ending.endswith(".gz")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_columns_are_renamed_and_all_others_kept(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"own.{ending}"
    names = ["n", "article", "output", "gold", "model", "extra"]
    write_table(pd.DataFrame([["1", "A.", "B.", "C.", "M.", "E."]], columns=names), path)
    frame = read_table(
        path, source="article", summary="output", reference="gold", id="n", system="model"
    )
    assert list(frame.columns) == ["id", "source", "summary", "reference", "system", "extra"]
    assert list(frame.loc[0]) == ["1", "A.", "B.", "C.", "M.", "E."]


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        (["1", "2"], [1, 2]),
        (["1", ""], [1.0, None]),
        (["1.5", "NA"], [1.5, None]),
        (["nan", "2"], [None, 2.0]),
        (["-inf", "1e5"], [-math.inf, 1e5]),
        (["3.5", "066"], [3.5, 66.0]),
        (["001", "066"], ["001", "066"]),
        (["1", "x"], ["1", "x"]),
        (["NA", "null"], ["NA", "null"]),
        (["", ""], [None, None]),
        (["", "x"], ["", "x"]),
        (["True", "False"], [True, False]),
        (["True", ""], ["True", ""]),
        (["1_000", "2"], ["1_000", "2"]),
        ([" 1", "2"], [" 1", "2"]),
        (["9" * 25, "2"], ["9" * 25, "2"]),
        ([str(2**62), ""], [2**62, None]),
    ],
)
def test_other_csv_columns(tmp_path, fields, values):
    rows = "".join(f'A.,B.,"{field}"\n' for field in fields)
    column = read_table(table(tmp_path, f"source,summary,extra\n{rows}"))["extra"]
    got = [None if isinstance(value, float) and math.isnan(value) else value for value in column]
    assert got == values
    assert [type(value) for value in got] == [type(value) for value in values]


def test_text_columns_of_csv_are_never_typed(tmp_path):
    path = table(tmp_path, "id,source,summary,reference,system\n007,1,,NA,2.0\n")
    assert list(read_table(path).loc[0]) == ["007", "1", "", "NA", "2.0"]


def test_csv_with_byte_order_mark_windows_line_ends_and_blank_lines(tmp_path):
    path = table(tmp_path, b'\xef\xbb\xbfsource,summary\r\n\r\n"A\r\nB",C\r\n\r\n')
    assert read_table(path).to_dict("list") == {"source": ["A\r\nB"], "summary": ["C"]}


def test_csv_field_longer_than_pythons_limit(tmp_path):
    path = tmp_path / "long.csv"
    write_table(pd.DataFrame({"source": ["word " * 100_000], "summary": ["B."]}), path)
    assert len(read_table(path).loc[0, "source"]) == 500_000


def test_csv_header_only(tmp_path):
    frame = read_table(table(tmp_path, "source,summary,score\n"))
    assert list(frame.columns) == ["source", "summary", "score"]
    assert len(frame) == 0


def test_json_types_are_kept(tmp_path):
    lines = [
        '{"id": 7, "source": "A.", "summary": null, "n": 1, "tags": ["x"], "mixed": 1, "ok": true}',
        '{"id": "8", "source": "B.", "summary": "", "n": null, "mixed": "one", "ok": false}',
    ]
    frame = read_table(table(tmp_path, "\n".join(lines), "own.jsonl"))
    assert list(frame["id"]) == ["7", "8"]
    assert list(frame["summary"]) == [None, ""]
    assert frame["n"].dtype == "float64"
    assert list(frame["tags"]) == [["x"], None]
    assert list(frame["mixed"]) == [1, "one"]
    assert frame["ok"].dtype == bool


def test_parquet_types_are_kept(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "own.parquet"
    written = pd.DataFrame(
        {
            "id": [7, 8],
            "source": ["A.", None],
            "summary": pd.Categorical(["B.", "C."]),
            "score": pd.Series([0.5, 1.5], dtype="float32"),
            "day": pd.to_datetime(["2024-02-29", "2025-01-01"]),
            "spans": [[0, 1], [2]],
            "references": [("R.",), ("S.", "T.")],
        }
    )
    write_table(written, path)
    frame = read_table(path)
    assert list(frame["id"]) == ["7", "8"]
    assert list(frame["source"]) == ["A.", None]
    assert list(frame["summary"]) == ["B.", "C."]
    assert frame["score"].dtype == "float32"
    assert str(frame["day"].dtype).startswith("datetime64")
    assert list(frame["spans"]) == [[0, 1], [2]]
    assert list(frame["references"]) == [["R."], ["S.", "T."]]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "csv.gz"])
def test_table_file_faults(tmp_path, ending):
    path = tmp_path / f"own.{ending}"
    assert complaint(read_table, path) == f"{path}: there is no such file; check the path"
    path.mkdir()
    assert f"{path}: is a folder" in complaint(read_table, path)
    path.rmdir()
    path.write_bytes(gzip.compress(b"source,summary\n" * 50)[:-6])
    assert "gzip is cut off or damaged" in complaint(read_table, path)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_empty_and_misencoded_tables(tmp_path, ending):
    assert "is empty" in complaint(read_table, table(tmp_path, "\n", f"own.{ending}"))
    path = table(tmp_path, b"source\nsummary\ncaf\xe9\n", f"own.{ending}")
    assert f"{path}, line 3: byte 0xe9 is not UTF-8" in complaint(read_table, path)


@pytest.mark.parametrize("name", ["own.xlsx", "own.json", "own", "own.gz", "own.parquet.gz", "csv"])
def test_unknown_ending(tmp_path, name):
    path = tmp_path / name
    for call in (lambda: read_table(path), lambda: write_table(nasty_frame(), path)):
        message = complaint(call)
        assert message.startswith(f"{path}: unknown ending; known are ")
        for ending in (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"):
            assert ending in message
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('source,summary\n"A\nB",C\nD\n', "line 4: the number of fields is 1, not 2"),
        ("source,summary\nA,B,C\n", "line 2: the number of fields is 3, not 2"),
        ("source,summary\nA,B\rC\n", "line 3: the number of fields is 1, not 2"),
        ('source,summary\nA,"B\nC,D\n', "line 2: invalid CSV (unexpected end of data)"),
        ('source,summary\nA,"B" C\n', "line 2: invalid CSV"),
    ],
)
def test_csv_that_does_not_add_up(tmp_path, content, fault):
    path = table(tmp_path, content)
    message = complaint(read_table, path)
    assert message.startswith(f"{path}, {fault}")
    assert "quote texts" in message


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_missing_column_lists_those_at_hand(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"own.{ending}"
    write_table(pd.DataFrame({"article": ["A."], "summary": ["B."]}), path)
    message = complaint(read_table, path)
    assert "no column 'source' for the source; columns there: article, summary" in message
    assert "source=..." in message
    message = complaint(read_table, path, source="article", system="model")
    assert "no column 'model' for the system" in message


def test_jsonl_line_without_a_column(tmp_path):
    path = table(tmp_path, '{"source": "A.", "summary": "B."}\n{"source": "C."}', "own.jsonl")
    message = complaint(read_table, path)
    assert message.startswith(f"{path}, line 2: no column 'summary' for the summary")


@pytest.mark.parametrize("value", [7, 1.5, True, ["A."], {"text": "A."}])
def test_texts_that_are_none(tmp_path, value):
    good = {"source": "A.", "summary": "B."}
    lines = [json.dumps(good), json.dumps(good | {"summary": value})]
    path = table(tmp_path, "\n".join(lines), "own.jsonl")
    message = complaint(read_table, path)
    assert message.startswith(f"{path}, line 2: summary is {value!r}, not text; write")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_names_that_collide(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"own.{ending}"
    write_table(pd.DataFrame({"source": ["paper"], "article": ["A."], "summary": ["B."]}), path)
    message = complaint(read_table, path, source="article")
    assert "columns ['source', 'article'] would all be named 'source'" in message
    message = complaint(read_table, path, source="article", summary="article")
    assert "'article' can't be both" in message


def test_swapped_names_do_not_collide(tmp_path):
    path = table(tmp_path, "source,summary\nA.,B.\n")
    frame = read_table(path, source="summary", summary="source")
    assert frame.to_dict("list") == {"summary": ["A."], "source": ["B."]}


def test_header_that_repeats_a_name(tmp_path):
    message = complaint(read_table, table(tmp_path, "source,summary,n,n\nA,B,1,2\n"))
    assert "['n', 'n'] would all be named 'n'" in message


def test_invalid_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = table(tmp_path, b"PAR1 and no more", "own.parquet")
    assert f"{path}: is not valid Parquet" in complaint(read_table, path)
    assert f"{path}: is not valid Parquet" in complaint(load_summeval, path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    path = table(tmp_path, b"PAR1", "own.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for call in (
        lambda: read_table(path),
        lambda: load_summeval(path),
        lambda: write_table(nasty_frame(), path),
    ):
        assert "pip install 'seval_ex[parquet]'" in complaint(call)
    assert path.read_bytes() == b"PAR1"


# ---------------------------------------------------------------- your own tables: writing


def test_nested_values_are_json_text_in_csv(tmp_path):
    frame = pd.DataFrame(
        {
            "source": ["A."],
            "summary": [None],
            "references": [("é", "b")],
            "spans": [[(0, 1), None]],
            "notes": [{"kind": "role", 1: math.nan}],
        }
    )
    write_table(frame, tmp_path / "own.csv")
    back = read_table(tmp_path / "own.csv")
    assert back.loc[0, "references"] == '["é", "b"]'
    assert json.loads(back.loc[0, "spans"]) == [[0, 1], None]
    assert json.loads(back.loc[0, "notes"]) == {"kind": "role", "1": None}
    assert back.loc[0, "summary"] == ""


def test_what_is_missing_is_null_in_jsonl(tmp_path):
    frame = pd.DataFrame(
        {
            "a": [None, "x"],
            "b": [math.nan, 1.0],
            "c": pd.array([1, None], dtype="Int64"),
            "d": pd.to_datetime(["2024-02-29", None]),
            "e": pd.Series(["x", None], dtype="string"),
        }
    )
    write_table(frame, tmp_path / "own.jsonl")
    records = [json.loads(line) for line in (tmp_path / "own.jsonl").read_text().splitlines()]
    assert records == [
        {"a": None, "b": None, "c": 1, "d": "2024-02-29T00:00:00", "e": "x"},
        {"a": "x", "b": 1.0, "c": None, "d": None, "e": None},
    ]


@pytest.mark.parametrize(
    ("column", "ending", "fault"),
    [
        (["x", "\ud800"], "csv", "row 2, column 'c': '\\ud800' holds half a character"),
        (["x", ["\ud800"]], "jsonl", "row 2, column 'c': '\\ud800' holds half a character"),
        ([0.5, math.inf], "jsonl", "row 2: infinity has no form in JSON"),
        ([None, [math.inf]], "csv", "row 2: infinity has no form in JSON"),
        ([None, {1, 2}], "jsonl", "row 2, column 'c': {1, 2} is of type set"),
        ([None, {1, 2}], "tsv", "row 2, column 'c': {1, 2} is of type set"),
        (["x", 1], "parquet", "has no form in Parquet"),
        (["x", "\ud800"], "parquet", "has no form in Parquet"),
    ],
)
def test_values_without_a_form(tmp_path, column, ending, fault):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"own.{ending}"
    path.write_text("old")
    frame = pd.DataFrame({"c": pd.Series(column, dtype=object)})
    assert f"{path}" in complaint(write_table, frame, path)
    assert fault in complaint(write_table, frame, path)
    assert path.read_text() == "old"


@pytest.mark.parametrize("columns", [["a", "a"], ["a", 1], []])
def test_column_names_must_be_distinct_texts(tmp_path, columns):
    frame = pd.DataFrame([["x"] * len(columns)], columns=columns)
    assert "are not distinct texts" in complaint(write_table, frame, tmp_path / "own.csv")


def test_missing_folder_is_not_made(tmp_path):
    path = tmp_path / "nights" / "own.csv"
    message = complaint(write_table, nasty_frame(), path)
    assert message.endswith(f"there is no folder {path.parent}; create it first")
    assert not path.parent.exists()
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in complaint(write_table, nasty_frame(), tmp_path / "folder.csv")


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "own.csv"
    path.write_text("old")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    message = complaint(write_table, nasty_frame(), path)
    assert "can't be written" in message
    assert "No space left" in message
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["own.csv"]


def test_interrupted_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_table(nasty_frame(), tmp_path / "own.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="file modes and links are those of POSIX")
def test_mode_and_link_survive(tmp_path):
    real = tmp_path / "real.csv"
    real.write_text("old")
    real.chmod(0o640)
    link = tmp_path / "link.csv"
    link.symlink_to(real)
    write_table(nasty_frame(), link)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert len(read_table(real)) == 4


def test_same_frame_same_bytes(tmp_path):
    for name in ("one.csv.gz", "two.csv.gz"):
        write_table(nasty_frame(), tmp_path / name)
    assert (tmp_path / "one.csv.gz").read_bytes() == (tmp_path / "two.csv.gz").read_bytes()


# ---------------------------------------------------------------- round trips of any text

WORDS = st.sampled_from(["NA", "null", "None", "nan", "007", "1e5", "True"])
SIGNS = st.sampled_from(
    [*"\",\r\n\t\0\\\ufeff\u2028\x1a' \x85🙂", "e\u0301", '""', "\r\n", "", "=1", "[]", "{}"]
)
TEXT = WORDS | st.lists(SIGNS | st.text(max_size=5), max_size=5).map("".join)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz"])
@settings(deadline=None, max_examples=150)
@given(rows=st.lists(st.tuples(*[TEXT] * 5, st.integers(-(2**63), 2**63 - 1), NUMBER), min_size=1))
def test_csv_round_trip(tmp_path_factory, ending, rows):
    path = tmp_path_factory.mktemp("round") / f"own.{ending}"
    columns = ["id", "system", "source", "summary", "reference", "count", "score"]
    write_table(pd.DataFrame(rows, columns=columns), path)
    assert [tuple(row) for row in read_table(path).itertuples(index=False)] == rows


@settings(deadline=None, max_examples=150)
@given(
    names=st.lists(TEXT, min_size=1, max_size=3, unique=True),
    rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3),
)
def test_csv_round_trip_of_column_names(tmp_path_factory, names, rows):
    path = tmp_path_factory.mktemp("round") / "own.csv"
    names = [name for name in names if name not in ("id", "system", "reference")]
    names = ["source", "summary", *[name for name in names if name not in ("source", "summary")]]
    frame = pd.DataFrame([[*row, *["x"] * (len(names) - 2)] for row in rows], columns=names)
    write_table(frame, path)
    assert list(read_table(path).columns) == names


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBER | TEXT,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXT, children, max_size=3),
    max_leaves=5,
)


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.tuples(*[TEXT | st.none()] * 5, st.lists(JSON)), min_size=1))
def test_jsonl_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("round") / "own.jsonl"
    columns = ["id", "system", "source", "summary", "reference", "any"]
    write_table(pd.DataFrame(rows, columns=columns, dtype=object), path)
    assert [tuple(row) for row in read_table(path).itertuples(index=False)] == rows


@settings(deadline=None, max_examples=100)
@given(content=st.binary(max_size=200) | TEXT.map(str.encode))
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "jsonl.gz"])
def test_any_bytes_are_a_table_or_a_data_error(tmp_path_factory, ending, content):
    path = tmp_path_factory.mktemp("any") / f"own.{ending}"
    path.write_bytes(content)
    for call in (read_table, load_summeval):
        try:
            call(path)
        except DataError as error:
            assert str(path) in str(error)


# ---------------------------------------------------------------- the sample


def test_sample_is_tidy():
    frame = load_sample()
    expected = ["id", "domain", "language", "system", "source", "summary", "reference"]
    assert list(frame.columns) == [*expected, "references", "sentences", "consistency"]
    assert set(frame["system"]) == {
        "extractive",
        "abstractive",
        "wrong_fact",
        "invented_detail",
    }
    assert not frame.duplicated(["id", "system"]).any()
    assert all(row.references == (row.reference,) for row in frame.itertuples())
    for row in frame.itertuples():
        verdicts = [sentence["verdict"] for sentence in row.sentences]
        assert row.consistency == verdicts.count("TP") / len(verdicts)
        assert all(sentence["text"] in row.summary for sentence in row.sentences)


@pytest.mark.parametrize("ending", ["csv", "jsonl.gz", "parquet"])
def test_sample_round_trip(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    frame = load_sample()
    write_table(frame, tmp_path / f"sample.{ending}")
    back = read_table(tmp_path / f"sample.{ending}")
    for column in ("id", "system", "source", "summary", "reference", "consistency"):
        assert list(back[column]) == list(frame[column])


# ---------------------------------------------------------------- the real files


@pytest.fixture(scope="module")
def real_data() -> Path:
    folder = os.environ.get("SEVAL_EX_DATA")
    if not folder:
        pytest.skip("SEVAL_EX_DATA does not name the folder with the SummEval files")
    return Path(folder)


@pytest.fixture(scope="module")
def sixteen(real_data) -> pd.DataFrame:
    return load_summeval()


@pytest.fixture(scope="module")
def twelve(real_data) -> pd.DataFrame:
    path = real_data / "summeval" / "model_annotations.aligned.paired.12systems.jsonl.gz"
    return load_summeval(path)


def test_real_files_are_whole(sixteen, twelve):
    for frame, systems in ((sixteen, 16), (twelve, 12)):
        assert len(frame) == 100 * systems
        assert frame["id"].nunique() == 100
        assert frame["system"].nunique() == systems
        assert not frame.isna().any().any()
        assert all(len(references) == 11 for references in frame["references"])
        assert (frame["reference"] == [each[0] for each in frame["references"]]).all()
    assert set(twelve["system"]) < set(sixteen["system"])


def test_real_files_agree_on_the_experts(sixteen, twelve):
    both = sixteen.merge(twelve, on=["id", "system"], suffixes=("", "_released"), validate="1:1")
    assert len(both) == 1200
    for name in RATINGS:
        assert (both[name] - both[f"{name}_released"]).abs().max() < 1e-9


def test_real_turkers_are_others_than_the_experts(real_data, twelve):
    path = real_data / "summeval" / "model_annotations.aligned.paired.12systems.jsonl.gz"
    crowd = load_summeval(path, annotators="turker")
    assert crowd[["id", "system"]].equals(twelve[["id", "system"]])
    assert abs(crowd["consistency"].corr(twelve["consistency"])) < 0.5


def test_real_csv_files_are_read(real_data):
    for name in ("pegasus", "bart", "distilbart", "huggingface"):
        path = real_data / "xsum_predictions" / f"Dataset_{name}.csv"
        frame = read_table(path, source="Document", summary="Summary")
        assert list(frame.columns)[:2] == ["source", "summary"]
        assert 100 <= len(frame) <= 160
