"""The page of told models on new splits: ``python -m benchmarks.told_pooled --told FILE --others FILE --page PAGE``.

    python -m benchmarks.pooled_sets --data FOLDER --out POOLED
    python -m benchmarks.told_grid --data POOLED --out CELLS --jobs 2
    python -m benchmarks.told_grid --merge CELLS --told TOLD --others OTHERS
    python -m benchmarks.told_pooled --told TOLD --others OTHERS --page PAGE

Every seed draws a fifth of all rows of a set as test rows. A pair of group and metric is shown when all five seeds of told and
of every single method are there.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections import Counter
from pathlib import Path

from benchmarks.compare_groups import TABULAR
from benchmarks.metric_defaults import CHOOSING, JUDGING
from benchmarks.told_beside import RESAMPLED, WELCH, Cells, beside, by_group, overview, verdict
from benchmarks.told_grid import BODIES, METHODS, SEEDS
from benchmarks.told_metric import TOLD
from manyhot.comparison.plan import hardware
from manyhot.comparison.statistics import ALPHA, PAPER_METRICS, group_of

HEAD = """# The default, told the metric, on new splits of the tables

- Date: {date}
- Commands: `python -m benchmarks.pooled_sets --data FOLDER --out POOLED`,
  `python -m benchmarks.told_grid --data POOLED --out CELLS`,
  `python -m benchmarks.told_grid --merge CELLS --told TOLD --others OTHERS`, then
  `python -m benchmarks.told_pooled --told TOLD --others OTHERS --page PAGE`
- Hardware: {hardware}
- Rows: training and test rows of a set are joined, and each of five seeds draws a fifth as test rows. These splits were made
  after all defaults were fixed, and each was judged once
- Single methods: {methods}; each with 6 trials a seed, chosen on a fifth of its training rows, and two rules
- Test of a pair of group and metric: the corrected resampled t-test over the five splits, with Holm's correction over the
  methods and rules. It was settled before the run. Told stands against the best single method of the group by the test rows;
  the choice of that one favours it
- Sets whose training rows chose defaults: {chose}
- Sets that judge and chose nothing: {judge}. Their rows were not new: test figures on other splits of them were known (page
  [told-groups](told-groups-2026-11-18.md))
"""


def complete(told: Cells, others: Cells) -> Cells:
    """The cells of groups in which every single method has all seeds; told with the metrics that have all seeds."""
    methods = METHODS.split(",")
    counts = Counter((group_of(cell), cell["method"]) for cell in others)
    groups = {group_of(c) for c in others if all(counts[group_of(c), method] == SEEDS for method in methods)}
    measured = Counter((group_of(cell), metric) for cell in told for metric in cell["metrics"]["tuned"])
    kept = [cell for cell in others if group_of(cell) in groups]
    for cell in told:
        own = {name: value for name, value in cell["metrics"]["tuned"].items() if measured[group_of(cell), name] == SEEDS}
        if group_of(cell) in groups and own:
            kept.append({**cell, "metrics": {"tuned": own, "natural": own}})
    with_told = {group_of(cell) for cell in kept if cell["method"] == TOLD}
    return [cell for cell in kept if group_of(cell) in with_told]


def summary(kept: Cells) -> list[str]:
    """How many pairs there are, and in how many of them told is behind, by either test."""
    pairs = [each for metric in PAPER_METRICS for each in beside(kept, metric, RESAMPLED)]
    welch = [
        f"{each.group} {metric} ({each.gap:+.2f}, p {each.p_holm:.2g})"
        for metric in PAPER_METRICS
        for each in beside(kept, metric, WELCH)
        if each.behind
    ]
    missing = [
        f"{name}/{body}"
        for name in TABULAR
        for body in BODIES
        if f"{name}/{body}" not in {group_of(cell) for cell in kept if cell["method"] == TOLD}
    ]
    fewer = Counter(each.group for each in pairs)
    partly = [f"{group} ({count} metrics)" for group, count in sorted(fewer.items()) if count < len(PAPER_METRICS)]
    return [
        f"- Groups: {len(fewer)} of {len(TABULAR) * len(BODIES)}; not run: {', '.join(missing) or 'none'}; run in part:"
        f" {', '.join(partly) or 'none'}",
        f"- **Of {len(pairs)} pairs of group and metric told has the best mean in {sum(each.gap > 0 for each in pairs)}, and is"
        f" significantly behind in {sum(each.behind for each in pairs)}**; it is significantly ahead in"
        f" {sum(each.gap > 0 and each.p_holm < ALPHA for each in pairs)}. By Welch's test, which takes no notice of shared rows"
        f" and overlapping splits, it is behind in {len(welch)}: {'; '.join(welch) or 'none'}",
    ]


def page(told: Cells, others: Cells, head: str, notes: str) -> str:
    """The whole page; ``notes`` follow the head."""
    kept = complete(told, others)
    lines = [head.rstrip(), *summary(kept), *notes.splitlines(), "", *verdict(kept, RESAMPLED), "", *overview(kept)]
    for metric in PAPER_METRICS:
        lines += [f"### {metric}, the others by either rule", "", *by_group(kept, metric, RESAMPLED), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--told", type=Path, required=True)
    parser.add_argument("--others", type=Path, required=True)
    parser.add_argument("--hardware", default=hardware())
    parser.add_argument("--notes", type=Path, help="lines that follow the head of the page")
    parser.add_argument("--date", default=str(datetime.datetime.now(datetime.UTC).date()))
    parser.add_argument("--page", type=Path, required=True)
    given = parser.parse_args()
    told, others = ([json.loads(line) for line in path.read_text().splitlines()] for path in (given.told, given.others))
    about = {"chose": ", ".join(CHOOSING), "judge": ", ".join(name for name in JUDGING if name in TABULAR)}
    head = HEAD.format(date=given.date, hardware=given.hardware, methods=METHODS, **about)
    given.page.write_text(page(told, others, head, given.notes.read_text() if given.notes else ""))


if __name__ == "__main__":
    main()
