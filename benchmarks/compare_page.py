"""The page of ``benchmarks.compare_groups``, from its cells alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare_claims import (
    AUTO,
    MENDERS,
    PAPER,
    Cells,
    Pairs,
    Statistics,
    automatic,
    claims,
    empty_rows,
    losing,
    over_common_groups,
)
from benchmarks.compare_same_scores import same_scores
from benchmarks.compare_text import text_sets, value_tables
from benchmarks.train_default import table as default_text
from manyhot.comparison.records import CELLS, PLAN, read_cells
from manyhot.comparison.statistics import PAPER_METRICS, RULES, group_of, summarise
from manyhot.comparison.table import markdown_table, rank_rows, test_lines

DEFAULT = (
    "`python -m benchmarks.train_default`: `manyhot train` with its own settings but for the weight of the positives"
    " (`labels`: the number of labels, 100 at most), on the sets that have a test file. With the rule it tunes,"
    " weights change micro- and macro-F1 by little, in both directions, and cost calibration; the automatic weight is"
    " a shift that tuned cuts replace, so nothing changes. Without tuning every weight helps the F1s; the automatic"
    " one gains most, and costs neither ranking nor calibration, the fixed ones calibration. (Its natural figures are of a"
    " later run than the others, of the same training.) What follows: `auto` where the rule is not"
    " tuned; where it is, no weight, but for texts: on the three text sets the number of labels is ahead by 0.1 to 0.4"
    " points of micro-F1 and 0.1 to 0.6 of AvgPrec, at a cost in calibration."
)


def page(folder: Path, *, text: Sequence[Path] = (), rules: Path | None = None, default: Path | None = None) -> str:
    """The whole page. Each part counts the groups that have all the methods it speaks of.

    Args:
        folder: the tabular grid.
        text: folders of the text sets.
        rules: the folder of ``benchmarks.compare_rules``.
        default: the file of ``benchmarks.train_default``.
    """
    cells = finished(folder)
    plan = json.loads((folder / PLAN).read_text())
    methods = list(plan["methods"])
    whole = over_common_groups(cells, methods)
    few = over_common_groups(cells, PAPER)
    pairs = Pairs(cells, [*MENDERS, "powerset"])
    every = summarise([cell for cell in cells if group_of(cell) in few["groups"]], order=methods)
    parts = [
        *header(folder, plan, cells, whole, few),
        *claims(few, pairs),
        *losing(few, pairs, empty_rows(cells)),
        *automatic(cells),
    ]
    if rules:
        parts += same_scores([cell for cell in read_cells(rules / CELLS) if "error" not in cell])
    if default:
        parts += ["## 3. The default of `manyhot train`", "", DEFAULT, "", default_text(default), ""]
    if text:
        plans = [json.loads((each / PLAN).read_text()) for each in text]
        parts += text_sets([cell for each in text for cell in finished(each)], plans)
    parts += [*ranks(whole), *kinds_of_data(few), *costs(every, cells), *groups(every)]
    return "\n".join(parts) + "\n"


def finished(folder: Path) -> list[dict[str, Any]]:
    """The cells of a folder that did not fail."""
    return [cell for cell in read_cells(folder / CELLS) if "metrics" in cell]


def header(folder: Path, plan: dict[str, Any], cells: Cells, whole: Statistics, few: Statistics) -> list[str]:
    """What was run, where, for how long, and what is missing."""
    runs = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    settings = plan["settings"]
    times: Counter[str] = Counter()
    for run in runs:
        times[f"{run['hardware']} (torch {run['versions']['torch']}, Python {run['versions']['python']})"] += run["seconds"]
    wanted = {f"{data}/{model}" for data in plan["data"] for model in plan["models"]}
    methods = {group: {c["method"] for c in cells if group_of(c) == group} for group in wanted}
    seeds = {group: len({c["seed"] for c in cells if group_of(c) == group}) for group in wanted}
    missing = sorted(group for group in wanted if not methods[group] >= set(PAPER))
    partly = sorted(group for group in wanted if group not in missing and not methods[group] >= set(plan["methods"]))
    fewer = sorted(f"{group} ({count})" for group, count in seeds.items() if 0 < count < plan["seeds"])
    on_gpu = sorted({group_of(cell) for cell in cells if cell["cost"]["device"] == "cuda"})
    return [
        f"# Losses on {len(few['groups'])} groups of tabular data, and on text",
        "",
        f"- Date: {plan['created'][:10]}",
        "- Command: `python -m benchmarks.compare_groups --data FOLDER --out RESULTS`, then `--page FILE`; beside it"
        " `--sets text`, `--sets eurlex57k`, `benchmarks.compare_rules` and `benchmarks.train_default`,"
        " as their first lines say",
        "- Time of the runs that made these cells: "
        + "; ".join(f"{seconds / 60:.0f} minutes on {where}" for where, seconds in times.items()),
        *whole_time(cells, plan),
        f"- Cells: {sum(c['method'] in plan['methods'] for c in cells)} of {plan['cells']}; {plan['seeds']} seeds"
        + (f", fewer in {', '.join(fewer)}" if fewer else ""),
        f"- Groups run on the GPU: {', '.join(on_gpu) or 'none'}",
        f"- Groups without all six losses of the paper, left out: {', '.join(missing) or 'none'}"
        + (" (the time for them was not there)" if missing else ""),
        f"- Groups with the paper's losses but not all {len(plan['methods'])} methods: {', '.join(partly) or 'none'}",
        "",
        f"Every method gets {settings['trials']} trials a seed (learning rates, and two values of a knob where the loss"
        " has one),"
        f" AdamW, at most {settings['epochs']} epochs or {settings['steps']} steps, early stopping after {settings['patience']}"
        f" epochs, {settings['validation']:.0%} of the training rows for validation. A trial and an epoch are chosen by"
        " the mean"
        " of the six metrics on validation rows, under the rule that is judged. **Natural**: the decision of the loss itself"
        " (s > 0; the k best, k the mean number of labels, for LSEP, pairwise and two-way; the most probable set for label"
        " powerset). **Tuned**: one cut for each metric, exact on validation rows. A group is a data set with a body"
        f" (linear, or one hidden layer of {settings['hidden']}).",
        "",
        f"Each part counts the groups that have all the methods it speaks of: {len(few['groups'])} for the paper's six losses,"
        f" {len(whole['groups'])} for all {len(plan['methods'])} methods.",
        "",
    ]


def whole_time(cells: Cells, plan: dict[str, Any]) -> list[str]:
    """What one run of the whole grid takes, from the cells' own seconds; cells that are missing count as their group's mean."""
    seconds: dict[str, float] = {"cpu": 0.0, "cuda": 0.0}
    for group in {group_of(cell) for cell in cells}:
        own = [cell for cell in cells if group_of(cell) == group and cell["method"] in plan["methods"]]
        missing = (len(plan["methods"]) * plan["seeds"] - len(own)) / max(len(own), 1)
        for cell in own:
            seconds[cell["cost"]["device"]] += (1 + missing) * cell["cost"]["seconds"]
    words = f"{seconds['cpu'] / 3600:.1f} hours of CPU processes and {seconds['cuda'] / 3600:.1f} hours of GPU processes"
    minutes = max(seconds["cpu"] / 10, seconds["cuda"] / 6) / 60
    return [
        f"- Time of the whole grid by the one command: its cells sum up to {words} (as measured, with the machines shared):"
        f" with 10 CPU and 6 GPU processes about {minutes:.0f} minutes. It was run in parts, which the command puts together."
    ]


def ranks(whole: Statistics) -> list[str]:
    """Average ranks of everything."""
    parts = [f"## 5. All methods: average ranks over {len(whole['groups'])} groups", ""]
    for rule in RULES:
        parts += [f"{rule.capitalize()} rule, 1 is best:", "", markdown_table(["", *PAPER_METRICS], rank_rows(whole, rule)), ""]
        parts += [*(f"- {line}" for line in test_lines(whole, rule)), ""]
    return parts


def kinds_of_data(few: Statistics) -> list[str]:
    """Spearman's correlations of ZLPR's lead with facts of the data, where they are sure."""
    rows = []
    facts = ("num_labels", "imbalance", "cardinality")
    for metric in PAPER_METRICS:
        for other, found in few["effects"]["natural"][metric].items():
            cells = [f"{found[f]['rho']:+.2f}{'*' if found[f]['p'] < 0.05 else ''}" if f in found else "-" for f in facts]
            if any("*" in cell for cell in cells):
                rows.append([f"{metric}, over {few['titles'][other]}", *cells])
    looked = len(PAPER_METRICS) * (len(PAPER) - 1) * len(facts)
    return [
        "## 6. On which data ZLPR leads",
        "",
        "Spearman's correlation over groups of ZLPR's lead (natural rule) with the number of labels, the mean imbalance and the"
        f" cardinality; pairs with at least one p below 0.05 (*, not corrected: {looked} correlations were looked at).",
        "",
        markdown_table(["lead", "labels", "imbalance", "cardinality"], rows),
        "",
    ]


def costs(every: Statistics, cells: Cells) -> list[str]:
    """Time and memory as multiples of ZLPR's."""
    rows = []
    devices = {(group_of(cell), cell["method"]): cell["cost"]["device"] for cell in cells}
    for name in every["methods"]:
        found = {group: row for group, row in every["costs"].items() if {name, "zlpr"} <= set(row)}
        both = [row for group, row in found.items() if devices[group, name] == devices[group, "zlpr"]]
        epoch = [row[name]["epoch_seconds"] / row["zlpr"]["epoch_seconds"] for row in both]
        state = [row[name]["state_bytes"] / row["zlpr"]["state_bytes"] for row in both]
        numbers = (f"{np.median(epoch):.2f}", f"{max(epoch):.2f}", f"{np.median(state):.2f}", f"{max(state):.1f}")
        rows.append([f"{every['titles'][name]} ({len(both)})", *numbers])
    return [
        "## 7. Cost against ZLPR",
        "",
        "Time of an epoch and memory of a model in training, as multiples of ZLPR's in the same group on the same device"
        " (number of groups in brackets). Processes share the machine, so times are rough.",
        "",
        markdown_table(["", "time, median", "time, most", "memory, median", "memory, most"], rows),
        "",
    ]


def groups(every: Statistics) -> list[str]:
    """The values of the paper's losses, label powerset and the automatic weight in every group."""
    return ["## 8. The groups", "", *value_tables(every, (*PAPER, "powerset", AUTO), RULES[:1])]
