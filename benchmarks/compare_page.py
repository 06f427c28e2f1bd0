"""The page of ``benchmarks.compare_groups``, from its cells alone."""

from __future__ import annotations

import json
from collections import Counter
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
from manyhot.compare.records import CELLS, PLAN, read_cells
from manyhot.compare.statistics import PAPER_METRICS, RULES, group_of, summarise
from manyhot.compare.table import markdown_table, rank_rows, test_lines


def page(folder: Path) -> str:
    """The whole page. Each part counts the groups that have all the methods it speaks of."""
    cells = [cell for cell in read_cells(folder / CELLS) if "metrics" in cell]
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
        *ranks(whole),
        *kinds_of_data(few),
        *costs(every),
        *groups(every),
    ]
    return "\n".join(parts) + "\n"


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
        f"# Losses on {len(few['groups'])} groups of tabular data",
        "",
        f"- Date: {plan['created'][:10]}",
        "- Command: `python -m benchmarks.compare_groups --data FOLDER --out RESULTS`, then `--page FILE`",
        "- Time: " + "; ".join(f"{seconds / 60:.0f} minutes on {where}" for where, seconds in times.items()),
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


def ranks(whole: Statistics) -> list[str]:
    """Average ranks of everything."""
    parts = [f"## 3. All methods: average ranks over {len(whole['groups'])} groups", ""]
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
        "## 4. On which data ZLPR leads",
        "",
        "Spearman's correlation over groups of ZLPR's lead (natural rule) with the number of labels, the mean imbalance and the"
        f" cardinality; pairs with at least one p below 0.05 (*, not corrected: {looked} correlations were looked at).",
        "",
        markdown_table(["lead", "labels", "imbalance", "cardinality"], rows),
        "",
    ]


def costs(every: Statistics) -> list[str]:
    """Time and memory as multiples of ZLPR's."""
    rows = []
    for name in every["methods"]:
        both = [row for row in every["costs"].values() if {name, "zlpr"} <= set(row)]
        epoch = [row[name]["epoch_seconds"] / row["zlpr"]["epoch_seconds"] for row in both]
        state = [row[name]["state_bytes"] / row["zlpr"]["state_bytes"] for row in both]
        numbers = (f"{np.median(epoch):.2f}", f"{max(epoch):.2f}", f"{np.median(state):.2f}", f"{max(state):.1f}")
        rows.append([f"{every['titles'][name]} ({len(both)})", *numbers])
    return [
        "## 5. Cost against ZLPR",
        "",
        "Time of an epoch and memory of a model in training, as multiples of ZLPR's in the same group (number of groups in"
        " brackets). Processes share the machine, so times are rough.",
        "",
        markdown_table(["", "time, median", "time, most", "memory, median", "memory, most"], rows),
        "",
    ]


def groups(every: Statistics) -> list[str]:
    """The values of the paper's losses, label powerset and the automatic weight in every group."""
    parts = ["## 6. The groups", ""]
    methods = [name for name in (*PAPER, "powerset", AUTO) if name in every["methods"]]
    for metric in ("SubACC", "micro-F1", "macro-F1", "AvgPrec"):
        rows = []
        for group in every["groups"]:
            row = every["values"]["natural"][metric][group]
            best = max((cell["mean"] for name, cell in row.items() if name in methods), default=0.0)
            line = [group]
            for name in methods:
                text = f"{100 * row[name]['mean']:.1f} ± {100 * row[name]['std']:.1f}" if name in row else "-"
                line.append(f"**{text}**" if name in row and row[name]["mean"] >= best - 1e-12 else text)
            rows.append(line)
        parts += [
            f"{metric}, natural rule, percent:",
            "",
            markdown_table(["", *(every["titles"][n] for n in methods)], rows),
            "",
        ]
    return parts
