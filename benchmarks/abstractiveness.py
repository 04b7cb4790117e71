"""c1 + c2 + cL from raw text against four ROUGE packages: same pairs, one process, equal results.

Prints microseconds a pair and ratios, for pairs with distinct sources and for sources with 16
summaries each. `--stream` scores 10^5 and 10^6 pairs from Parquet to Parquet and prints peak
memory. Uses SummEval where SEVAL_EX_DATA names it, else the shipped sample. Peers that are not
installed are left out: pip install rapidrouge rouge-rust rouge-score-rs
"""

import argparse
import importlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"  # peers with threads run on one, as the others do

from seval_ex.abstractiveness import count_overlaps

Pairs = list[tuple[str, str]]
Run = Callable[[Pairs], list[tuple[float, float, float]]]
NAMES = ("rouge1", "rouge2", "rougeL")


def pairs(distinct: bool) -> Pairs:
    """Load (source, summary) pairs; with distinct sources each has one more word of its own."""
    from seval_ex.tables import table_data

    frame, note = table_data("auto")
    if not distinct:
        print(note)
    rows = zip(frame["source"], frame["summary"], strict=True)
    return [(f"{s} x{n}" if distinct else s, t) for n, (s, t) in enumerate(rows)]


def ours(engine: str) -> Run:
    """Count with one of this package's engines."""

    def run(data: Pairs) -> list[tuple[float, float, float]]:
        sources, texts = zip(*data, strict=True)
        found = count_overlaps(texts, sources, engine=engine)
        length = found[:, 3:4]
        total = length - [[0, 1, 0]]
        shares = found[:, :3] / total.clip(1)
        return list(map(tuple, shares.tolist()))

    return run


def scorer(module: str) -> Run | None:
    """Score with a package that has rouge-score's interface."""
    try:
        made = importlib.import_module(module).RougeScorer(list(NAMES))
    except ImportError:
        return None

    def run(data: Pairs) -> list[tuple[float, float, float]]:
        scores = (made.score(source, text) for source, text in data)
        return [tuple(score[name].precision for name in NAMES) for score in scores]

    return run


def rouge_rust() -> Run | None:
    """Score with rouge-rust, in columns."""
    try:
        fast_rouge = importlib.import_module("fast_rouge")
    except ImportError:
        return None

    def run(data: Pairs) -> list[tuple[float, float, float]]:
        sources, texts = zip(*data, strict=True)
        found = fast_rouge.score_batch_flat(list(sources), list(texts))
        columns = (found.rouge1_precision, found.rouge2_precision, found.rougeL_precision)
        return list(zip(*columns, strict=True))

    return run


def measure(run: Run, data: Pairs, repeats: int) -> tuple[list[float], list]:
    """Time a run on some pairs, in microseconds a pair."""
    times, found = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        found = run(data)
        times.append(1e6 * (time.perf_counter() - start) / len(data))
    return times, found


def compare(distinct: bool, repeats: int) -> None:
    """Print all ways on the same pairs; slow ones on a part, again the same pairs for all."""
    data = pairs(distinct)
    few = data[:: max(1, len(data) // 160)] if distinct else data[:160]
    ways: dict[str, tuple[Run | None, Pairs]] = {
        "seval_ex, kernel": (ours("compiled"), data),
        "seval_ex, plain": (ours("plain"), data),
        "rouge-score-rs": (scorer("rouge_score_rs"), data),
        "rouge-rust": (rouge_rust(), data),
        "rapidrouge": (scorer("rapidrouge"), few),
        "rouge-score": (scorer("rouge_score.rouge_scorer"), few),
    }
    ways["seval_ex, kernel"][0](data[:64])  # type: ignore[misc]
    times: dict[str, list[float]] = {name: [] for name in ways}
    expected = dict(zip(data, ours("compiled")(data), strict=True))
    for _ in range(repeats):  # alternating, so that a noisy machine is noisy for all
        for name, (run, some) in ways.items():
            if run is not None:
                told, found = measure(run, some, 1)
                times[name] += told
                assert found == [expected[pair] for pair in some], f"{name} differs"
    kernel = statistics.median(times["seval_ex, kernel"])
    print(f"\n{'distinct sources' if distinct else 'shared sources'}, {len(data)} pairs")
    print(f"{'':<18}{'µs/pair':>10}{'best':>10}{'kernel is faster':>18}")
    for name, told in times.items():
        if not told:
            print(f"{name:<18}{'not installed':>20}")
            continue
        median = statistics.median(told)
        print(f"{name:<18}{median:>10.1f}{min(told):>10.1f}{median / kernel:>17.1f}x")


def write_pairs(path: Path, rows: int) -> None:
    """Write that many different pairs, a few thousand at a time."""
    import pyarrow
    import pyarrow.parquet

    from seval_ex.tables import table_data

    frame = table_data("auto")[0][["source", "summary", "reference"]]
    schema = pyarrow.schema([(name, pyarrow.string()) for name in frame])
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, rows, len(frame)):
            part = frame.head(rows - start)
            part = part.assign(source=[f"{s} x{start + n}" for n, s in enumerate(part["source"])])
            writer.write_table(pyarrow.Table.from_pandas(part, schema, preserve_index=False))


def stream(rows: int) -> None:
    """Score that many pairs from Parquet to Parquet in this process, and print its peak memory."""
    from seval_ex.abstractiveness import score_parquet

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.parquet"
        subprocess.run([sys.executable, __file__, "--write", str(path), str(rows)], check=True)
        start = time.perf_counter()
        written = score_parquet(path, Path(folder) / "scored.parquet")
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    speed = 1e6 * seconds / written
    print(f"{written:>9} pairs {seconds:>7.1f} s {speed:>7.1f} µs/pair {peak:>6.0f} MB")


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--write", nargs=2)
    options = parser.parse_args()
    if options.write:
        write_pairs(Path(options.write[0]), int(options.write[1]))
    elif options.rows:
        stream(options.rows)
    elif options.stream:
        for rows in (100_000, 1_000_000):
            subprocess.run([sys.executable, __file__, "--rows", str(rows)], check=True)
    else:
        for distinct in (False, True):
            compare(distinct, options.repeats)


if __name__ == "__main__":
    main()
