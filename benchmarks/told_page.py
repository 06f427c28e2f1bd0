"""The page of ``benchmarks.told_metric``: ``python -m benchmarks.told_page --told FILE --others CELLS... --page PAGE``.

Tables are held against the cells of a comparison, text sets against the figures of two earlier pages of this folder. Nothing is
run, and a group that is missing is named.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare_groups import TABULAR
from benchmarks.metric_defaults import CHOOSING, JUDGING
from benchmarks.text_peers import METRICS as PEER_METRICS
from benchmarks.told_beside import by_group, overview, verdict
from benchmarks.told_choices import splits_of, table
from benchmarks.told_grid import METHODS
from benchmarks.told_listed import against_listed
from benchmarks.told_metric import TOLD
from manyhot.comparison.plan import hardware
from manyhot.comparison.records import read_cells
from manyhot.comparison.statistics import PAPER_METRICS, group_of
from manyhot.comparison.table import markdown_table

TEXT = ("reuters21578", "cooking_stackexchange", "goemotions", "eurlex57k")
RESULTS = Path(__file__).parent / "results"
LISTED = ("SubACC", "micro-F1", "macro-F1", "AvgPrec")
RULES = ("tuned", "natural")
SHOWN_CHOICES = (
    *("bce", "powerset", "zlpr+bce+powerset", "zlpr/s", "bce/s", "powerset/s", "two_way/s", "dice2/s", "zlpr+bce/s"),
    *("zlpr+powerset/s", "zlpr+bce+powerset/s", "zlpr/f", "bce/f", "powerset/f", "zlpr+bce/f", "zlpr+powerset/f"),
    *("zlpr+bce+powerset/f", "zlpr+bce+two_way+powerset/f", "zlpr/l", "zlpr+bce+powerset/l", "zlpr/w", "zlpr+bce+powerset/w"),
    *("zlpr/t", "zlpr+bce+powerset/t", "zlpr+bce+powerset/f, by sets 0, 0.5", "zlpr+bce+powerset/f, by sets 0.5, 0.5"),
)
HEAD = """# The default, told the metric, against single methods on 22 groups of tables, and on texts

- Date: {date}
- Commands: `python -m benchmarks.told_metric --data FOLDER --out TOLD`,
  `python -m benchmarks.compare_groups --data FOLDER --out RESULTS --losses {methods}` (or both by `benchmarks.told_grid`), then
  `python -m benchmarks.told_page --told TOLD --others RESULTS/cells.jsonl --page PAGE`
- Hardware: {hardware}
- Each test row was looked at once with these defaults. Test figures of earlier defaults and of single methods were known.
"""
CHOICES_NOTE = """## What was chosen, and what was tried and did not help

Training rows of emotions, birds and medical alone: three quarters train, a quarter judges; no test file is read
(`benchmarks.told_candidates`). Differences in points to what a table told a metric was fitted with before: ZLPR, five fits,
128 rows a step, a tenth held out in each. Means over groups; in brackets groups better : worse. RankLoss has its sign turned.
"/s": a step takes a sixteenth of the rows, 16 to 128. "/f": besides, each fit does without another fifth of the rows, so that
all rows tune the rule. "/l": twice the epochs; "/w": weight decay 0.3; "/t": three fits. "a+b" is the mean of losses as log
odds; zlpr+bce+powerset/f is the default now. "by sets w, m": the log odds of labels under the posterior over the label sets of
training rows, counts to the power w, mixed in by m. Splits: {splits}.
"""
LISTED_NOTE = (
    "Told against eight single methods of [the page of the groups](compare-groups-2026-11-15.md), each with 6 trials a seed and"
    " its natural rule; that page lists four of the six metrics by group, as means and deviations over 5 seeds."
)
BESIDE_NOTE = (
    "The single methods that were run again for this page, by `benchmarks.compare_groups` with its defaults: 6 trials a seed,"
    " chosen on a fifth of the training rows. Each has two rules, its natural one and the cut that is tuned for the metric."
    " Told stands against the best of all of them in each group, by the test rows: the choice of that one favours it. Welch's"
    " test is over seeds, and is shown by itself and with Holm's correction over the methods and rules."
)
TEXT_NOTE = (
    "Told chooses its body by itself, so both groups of a set see the same model. The others are those of the page of the"
    " groups: dense batches by AdamW, which on texts are below what linear solvers reach."
)
Cells = list[dict[str, Any]]


def page(told: Cells, others: Cells, head: str, notes: str = "") -> str:
    """The whole page; ``notes`` follow the head."""
    tables = [cell for cell in told if cell["data"] in TABULAR]
    texts = [cell for cell in told if cell["data"] in TEXT]
    groups = {group_of(cell) for cell in others} & {group_of(cell) for cell in tables}
    kept = [cell for cell in [*tables, *others] if group_of(cell) in groups]
    missing = [f"{n}/{b}" for n in TABULAR for b in ("linear", "mlp") if f"{n}/{b}" not in groups]
    lines = [head.rstrip(), "", *_about(kept, tables, texts, missing), "", *notes.splitlines(), ""]
    if missing:
        lines += ["## Tables", "", LISTED_NOTE, "", *against_listed(tables, "natural", LISTED)]
    if groups:
        lines += ["## Tables, all six metrics", "", BESIDE_NOTE, "", *verdict(kept), "", *overview(kept)]
    for metric in PAPER_METRICS if groups else ():
        lines += [f"### {metric}, the others by either rule", "", *by_group(kept, metric), ""]
    lines += ["## Texts", "", TEXT_NOTE, ""]
    for rule in RULES:
        lines += [f"**The others by their {rule} rule.**", "", *against_listed(texts, rule, LISTED)]
    lines += ["### Beside linear peers", "", *_peers(texts)]
    return "\n".join(lines) + "\n"


def _about(kept: Cells, tables: Cells, texts: Cells, missing: list[str]) -> list[str]:
    beside = {group_of(cell) for cell in kept}
    counts = {group: dict.fromkeys(PAPER_METRICS, 0) for group in sorted({group_of(c) for c in tables})}
    for cell in tables:
        for metric in PAPER_METRICS:
            counts[group_of(cell)][metric] += metric in cell["metrics"]["tuned"]
    absent = [f"{n}/{b}" for n in TABULAR for b in ("linear", "mlp") if f"{n}/{b}" not in counts]
    fewer = []
    for group, own in counts.items():
        few = {count: [m for m in own if own[m] == count] for count in sorted({*own.values()}) if count < 5}
        fewer += [f"{group} ({'all six' if len(names) == 6 else ', '.join(names)}: {count})" for count, names in few.items()]
    listed = {c["data"]: len([x for x in texts if x["data"] == c["data"]]) for c in texts}
    single = {(group_of(c), c["method"], c["seed"]) for c in kept if c["method"] != TOLD}
    methods = sorted({method for _, method, _ in single})
    lacking = {
        f"{group} {method} ({count})"
        for group in beside
        for method in methods
        if (count := len([x for x in single if x[:2] == (group, method)])) < 5
    }
    return [
        f"- Tables: {len(counts)} of 22 groups told, 5 seeds each{_but(fewer)}; not run: {', '.join(absent) or 'none'}",
        f"- Single methods run again beside them, for all six metrics: {len(methods)} in {len(beside)} groups, 5 seeds"
        f" each{_but(sorted(lacking))}; not run: {', '.join(missing) or 'none'}",
        f"- Texts: {', '.join(f'{name} ({count} seeds)' for name, count in listed.items()) or 'none'}; not run:"
        f" {', '.join(name for name in TEXT if name not in listed) or 'none'}",
        f"- Sets whose training rows chose defaults: {', '.join(CHOOSING)}",
        f"- Sets that judge and chose nothing: {', '.join(JUDGING)}",
    ]


def _but(exceptions: list[str]) -> str:
    return f" but {', '.join(exceptions)}" if exceptions else ""


def _peers(texts: Cells) -> list[str]:
    """Told against each peer of the page of text peers."""
    text, rows = (RESULTS / "text-peers-cpu-2026-11-15.md").read_text(), []
    for name in TEXT:
        own = [cell for cell in texts if cell["data"] == name]
        part = re.search(rf"^## {name}:.*?\n\n((?:\|.*\n)+)", text, re.M)
        if not own or part is None:
            continue
        header, _, *lines = ([x.strip() for x in line.strip("|").split("|")] for line in part[1].splitlines())
        values = {m: np.mean([100 * c["metrics"]["tuned"][m] for c in own]) for m in PEER_METRICS}
        rows.append([f"{name}, told ({own[0]['body']})", *(f"{values[m]:.1f}" for m in PEER_METRICS)])
        peers = [line for line in lines if not line[0].startswith("manyhot") and "not run" not in line[1]]
        best = {m: max(float(line[header.index(m)]) for line in peers) for m in PEER_METRICS}
        rows.append([f"{name}, best peer", *(f"{best[m]:.1f}" for m in PEER_METRICS)])
        behind = [m for m in PEER_METRICS if round(values[m], 1) < best[m]]
        rows.append([f"{name}, behind in", *("behind" if m in behind else "" for m in PEER_METRICS)])
    note = (
        "The best of [the page of text peers](text-peers-cpu-2026-11-15.md) in each metric; the peers ran on another machine,"
        " so that times are not compared. Told is a model for each metric."
    )
    return [note, "", markdown_table(["", *PEER_METRICS], rows)] if rows else ["Not run."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--told", type=Path, nargs="+", required=True)
    parser.add_argument("--others", type=Path, nargs="+", required=True)
    parser.add_argument("--choices", type=Path, nargs="*", default=[], help="lines of benchmarks.told_candidates")
    parser.add_argument("--hardware", default=hardware())
    parser.add_argument("--notes", type=Path, help="lines that follow the head of the page")
    parser.add_argument("--date", default=str(datetime.datetime.now(datetime.UTC).date()))
    parser.add_argument("--page", type=Path, required=True)
    given = parser.parse_args()
    told = [json.loads(line) for path in given.told if path.exists() for line in path.read_text().splitlines()]
    told = list({(c["data"], c["model"], c["seed"]): c for c in told}.values())
    others = [cell for path in given.others if path.exists() for cell in read_cells(path) if "metrics" in cell]
    others = list({(c["data"], c["model"], c["method"], c["seed"]): c for c in others}.values())
    notes = given.notes.read_text() if given.notes else ""
    text = page(told, others, HEAD.format(methods=METHODS, date=given.date, hardware=given.hardware), notes)
    if given.choices:
        text += "\n" + CHOICES_NOTE.format(splits=splits_of(given.choices)) + "\n" + table(given.choices, SHOWN_CHOICES) + "\n"
    given.page.write_text(text)


if __name__ == "__main__":
    main()
