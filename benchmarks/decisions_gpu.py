"""Decisions on a CUDA device for very many labels: the best labels, limits on their number, thresholds, counts per label.

    python -m benchmarks.decisions_gpu [--output PAGE.md]

Milliseconds with the host counted, medians, beside one read of the scores at the speed of a copy. What is found is compared
with torch's own sort before anything is timed.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu_engine import copy_bandwidth, table
from manyhot import DecisionRule, Metrics, SparseLabels, decide
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.decisions.tuning.label_cuts import label_cuts
from manyhot.decisions.tuning.one_cut import global_cut
from manyhot.decisions.tuning.rows import scored_rows
from manyhot.scores.top import TopScores

CASES = [(1024, 1_000_000, torch.bfloat16), (1024, 1_000_000, torch.float32), (2_000, 30_000, torch.float32)]
POSITIVES, K = 5, 10
HEAD = ["what", "ms", "times one read", "beside it, ms"]


def milliseconds(call, rounds=7):
    """The median of some calls, each waited for, after one that is not counted."""
    taken = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(taken[1:])


def problem(rows, num_labels, dtype):
    source = torch.Generator(device="cuda").manual_seed(0)
    scores = torch.randn(rows, num_labels, generator=source, device="cuda").sub_(2).to(dtype)
    first = torch.randint(num_labels // 8, (rows, POSITIVES), generator=source, device="cuda")
    chosen = (first + torch.arange(POSITIVES, device="cuda") * (num_labels // 8)).sort(dim=1).values
    scores.scatter_add_(1, chosen, torch.full(chosen.shape, 3.0, device="cuda", dtype=dtype))
    offsets = torch.arange(0, chosen.numel() + 1, POSITIVES, device="cuda")
    return scores, SparseLabels(chosen.flatten(), offsets, num_labels, validate=False)


def check(scores, labels):
    """Our best labels are those of a stable sort, and our threshold is the best of all, on a few rows."""
    part, own = scores[:8], labels[:8]
    values, order = part.float().sort(dim=1, descending=True, stable=True)
    top = TopScores.from_dense(part, k=K)
    assert torch.equal(top.indices, order[:, :K])
    assert torch.equal(top.values.float(), values[:, :K])
    data = scored_rows("check", part, own, None)
    cut = global_cut(data, OBJECTIVES["micro-F1"])
    everything, hits = part.float().flatten().sort().values, data.hits()
    steps = hits.unique()
    tp = (hits.unsqueeze(0) >= steps.unsqueeze(1)).sum(1)
    f1 = 2 * tp / (len(everything) - torch.searchsorted(everything, steps) + len(hits))
    reached = 2 * (hits > cut).sum() / ((part.float() > cut).sum() + len(hits))
    assert torch.isclose(reached.double(), f1.double().max(), rtol=1e-6), (reached, f1.max())


def lines(rows, num_labels, dtype, bandwidth):
    """The rows of one table, as they are measured."""
    scores, labels = problem(rows, num_labels, dtype)
    check(scores, labels)
    read = scores.numel() * scores.element_size() / bandwidth * 1e3
    rule, limits = DecisionRule(top_k=POSITIVES), DecisionRule(threshold=1.0, min_labels=1, max_labels=K)

    def line(what, call, other="", rounds=7):
        taken = milliseconds(call, rounds)
        return [what, f"{taken:.2f}", f"{taken / read:.1f}", other]

    sorted_all = f"torch.topk {milliseconds(lambda: scores.topk(K), 3):.2f}"
    yield line(f"`TopScores.from_dense`, k = {K}", lambda: TopScores.from_dense(scores, k=K), sorted_all)
    yield line(
        "`decide`, s > 0 (writes a byte an entry)",
        lambda: decide(scores),
        f"`scores > 0` {milliseconds(lambda: scores > 0):.2f}",
    )
    yield line(f"`decide`, top_k = {POSITIVES}", lambda: decide(scores, rule))
    yield line(f"`decide`, a threshold, 1 to {K} labels", lambda: decide(scores, limits))
    metrics = Metrics(["micro-F1", "macro-F1"], num_labels=num_labels, rule=DecisionRule(threshold=1.0)).to("cuda")
    yield line("counts per label of a threshold, index lists", lambda: metrics.update(scores, labels), rounds=5)
    dense = labels.dense()
    yield line(
        "counts per label of a threshold, dense labels (a byte an entry)", partial(metrics.update, scores, dense), rounds=5
    )
    del dense
    if dtype != torch.float32:
        return
    data = scored_rows("page", scores, labels, None)
    whole = f"sort of all scores {milliseconds(lambda: scores.flatten().sort(), 1):.2f}"
    yield line("one threshold, micro-F1", lambda: global_cut(data, OBJECTIVES["micro-F1"]), whole, 3)
    yield line("one threshold, macro-F1", lambda: global_cut(data, OBJECTIVES["macro-F1"]), rounds=3)
    for name in ("micro-F1", "macro-F1"):
        yield line(f"a threshold per label, {name}", lambda name=name: label_cuts(data, name, shrink=5.0, flood=5.0), rounds=3)
    cuts = label_cuts(data, "micro-F1", shrink=5.0, flood=5.0)
    yield line(
        "`DecisionRule` of these thresholds (Python floats, on the host)", lambda: DecisionRule(threshold=cuts), rounds=3
    )


def page(tables, bandwidth):
    import triton

    text = "\n\n".join(f"## {name}\n\n{table(HEAD, rows)}" for name, rows in tables.items())
    return f"""# Decisions for very many labels on {torch.cuda.get_device_name()}

{datetime.date.today()}, torch {torch.__version__}, triton {triton.__version__}, copy {bandwidth / 1e12:.2f} TB/s.
Command: `python -m benchmarks.decisions_gpu`. {POSITIVES} positives a row.

Milliseconds with the host counted, medians; "times one read" is the multiple of reading the scores once at the speed of a copy.

{text}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    settings = parser.parse_args()
    bandwidth, tables = copy_bandwidth(), {}
    for rows, num_labels, dtype in CASES:
        own = tables.setdefault(f"{rows:,} rows x {num_labels:,} labels, {str(dtype)[6:]}", [])
        for found in lines(rows, num_labels, dtype, bandwidth):
            own.append(found)
            print(rows, num_labels, dtype, found, flush=True)
            if settings.output:
                settings.output.write_text(page(tables, bandwidth))
        torch.cuda.empty_cache()
    if not settings.output:
        print(page(tables, bandwidth))


if __name__ == "__main__":
    main()
