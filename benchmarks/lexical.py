"""Speed and memory of the lexical engine against rouge-score, on the same pairs.

Each measurement runs in a process of its own; the two alternate, so that a noisy machine is noisy
for both. Prints seconds, ratios and peak memory: for 400, 800 and 1,600 SummEval summaries where
SEVAL_EX_DATA names them, else for the shipped sample.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time


def pairs(limit: int) -> list[tuple[str, str]]:
    """Load that many (source, summary) pairs."""
    from seval_ex.tables import table_data

    frame, _ = table_data("auto")
    return list(zip(frame["source"], frame["summary"], strict=True))[:limit]


def run_seval_ex(data: list[tuple[str, str]]) -> int:
    """Evaluate with StSum_Text: ledgers with evidence and explanations, scores, a frame."""
    from seval_ex import SEvalEx

    rows = [{"source": source, "summary": summary} for source, summary in data]
    return len(SEvalEx().evaluate_many(rows, progress=False))


def run_rouge_score(data: list[tuple[str, str]]) -> int:
    """ROUGE-1, ROUGE-2 and ROUGE-L of each summary against its source."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    return len([scorer.score(source, summary) for source, summary in data])


RUNS = {"seval_ex": run_seval_ex, "rouge-score": run_rouge_score}


def measure(name: str, limit: int) -> None:
    """Time one run in this process and print it as JSON."""
    data = pairs(limit)
    RUNS[name](data[:8])
    start = time.perf_counter()
    count = RUNS[name](data)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"pairs": count, "seconds": seconds, "peak_mb": peak}))


def in_a_process(name: str, limit: int) -> dict[str, float]:
    """Measure in a fresh process."""
    command = [sys.executable, __file__, "--measure", name, "--limit", str(limit)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=RUNS)
    parser.add_argument("--limit", type=int, default=1600)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.limit)
        return
    print(
        f"{'pairs':>6} {'seval_ex s':>11} {'rouge s':>9} {'ratio':>7} {'ms/pair':>8} {'peak MB':>8}"
    )
    available = len(pairs(1600))
    for limit in sorted({min(size, available) for size in (400, 800, 1600)}):
        ours, theirs = [], []
        for _ in range(options.repeats):
            ours.append(in_a_process("seval_ex", limit))
            theirs.append(in_a_process("rouge-score", limit))
        mine = statistics.median(run["seconds"] for run in ours)
        other = statistics.median(run["seconds"] for run in theirs)
        ratios = [b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True)]
        count, peak = ours[0]["pairs"], max(run["peak_mb"] for run in ours)
        ratio = statistics.median(ratios)
        print(
            f"{count:>6} {mine:>11.2f} {other:>9.2f} {ratio:>7.1f} "
            f"{1000 * mine / count:>8.2f} {peak:>8.0f}"
        )


if __name__ == "__main__":
    main()
