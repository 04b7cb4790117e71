"""ROUGE against all references, as Table 2 needs it: score_metrics against a loop over rouge-score.

The loop stems each text anew for each pair, as rouge-score does by itself; here each text is
stemmed once, and all cores work. Both alternate in one process, and the scores must be equal.
Prints seconds, the ratio, and the time of a second run that finds its scores recorded.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from seval_ex.baselines import ROUGE, _lines, score_metrics
from seval_ex.tables import table_data


def loop(frame: pd.DataFrame) -> dict[str, list[float]]:
    """Score each summary with each reference, one after another."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(list(ROUGE.values()), use_stemmer=True)
    found: dict[str, list[float]] = {name: [] for name in ROUGE}
    for summary, references in zip(frame["summary"], frame["references"], strict=True):
        scores = [scorer.score(_lines(each), _lines(summary)) for each in references]
        for name, kind in ROUGE.items():
            found[name].append(sum(each[kind].fmeasure for each in scores) / len(scores))
    return found


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Call and say how long it took."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    frame, note = table_data("auto", options.documents)
    print(note)
    ours, theirs, again = [], [], []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "scores.db"
            run = {"scores": store, "progress": False}
            seconds, scored = timed(lambda run=run: score_metrics(frame, list(ROUGE), **run))
            ours.append(seconds)
            again.append(timed(lambda run=run: score_metrics(frame, list(ROUGE), **run))[0])
        seconds, expected = timed(lambda: loop(frame))
        theirs.append(seconds)
        for name in ROUGE:
            assert (scored[name] - pd.Series(expected[name])).abs().max() < 1e-12, name
    mine, peer, recorded = map(statistics.median, (ours, theirs, again))
    print(f"rouge-score, loop   {peer:8.2f} s")
    print(f"score_metrics       {mine:8.2f} s   {peer / mine:6.1f} times as fast")
    print(f"the same again      {recorded:8.2f} s   {peer / recorded:6.1f} times as fast")


if __name__ == "__main__":
    main()
