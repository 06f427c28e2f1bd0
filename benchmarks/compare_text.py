"""The text sets of ``benchmarks.compare_groups`` on its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.compare_claims import (
    AUTO,
    F1S,
    MENDERS,
    PAPER,
    Cells,
    Pairs,
    Statistics,
    averages_table,
    menders,
    over_common_groups,
    powerset,
)
from manyhot.comparison.statistics import PAPER_METRICS, RULES, group_of, summarise
from manyhot.comparison.table import markdown_table

SHOWN = (*PAPER, "powerset", "zlpr+pos_weight=labels", AUTO)


def text_sets(cells: Cells, plans: Sequence[dict[str, Any]]) -> list[str]:
    """What was run, the paper's claims, the remedies, the values."""
    few = over_common_groups(cells, PAPER)
    pairs = Pairs(cells, [*MENDERS, "powerset"])
    methods = list(dict.fromkeys(name for plan in plans for name in plan["methods"]))
    common = over_common_groups(cells, methods)
    means = []
    if common["groups"]:
        shown = averages_table(common, [(name, rule) for rule in RULES for name in methods])
        means = [f"Means in percent of all methods over the {len(common['groups'])} groups that have them all:", "", shown, ""]
    every = summarise([cell for cell in cells if group_of(cell) in few["groups"]], order=methods)
    return [
        f"## 4. Text: {len(few['groups'])} groups beside the tabular ones",
        "",
        "Words by tf-idf as `manyhot train` reads them; same trials, bodies and rules as above. The bodies are those of the"
        " tabular groups too, trained by AdamW on dense batches: on short texts the linear one learns rare words by heart, far"
        " below what the linear solver of `manyhot train` reaches (part 3). Read these figures as losses under one body, not"
        " as what the sets allow.",
        "",
        *(f"- {line}" for line in descriptions(cells, plans)),
        "",
        "Groups in which each of the paper's losses has the best mean:",
        "",
        best_table(few),
        "",
        *(f"- {line}" for line in leads(few)),
        "",
        "The remedies against plain ZLPR, **natural rule** (as in part 2):",
        "",
        menders(pairs, "natural"),
        "",
        "With **tuned cuts**:",
        "",
        menders(pairs, "tuned"),
        "",
        *powerset(pairs),
        *means,
        *value_tables(every, SHOWN, RULES),
    ]


def descriptions(cells: Cells, plans: Sequence[dict[str, Any]]) -> list[str]:
    """One line a set: its size, methods and seeds, and what its budget has of its own."""
    lines = []
    for plan in plans:
        for data in plan["data"]:
            own = [cell for cell in cells if cell["data"] == data]
            if not own:
                continue
            facts, seeds = own[0]["facts"], sorted({cell["seed"] for cell in own})
            methods = {model: len({cell["method"] for cell in own if cell["model"] == model}) for model in plan["models"]}
            settings, devices = plan["settings"], Counter(cell["cost"]["device"] for cell in own)
            lines.append(
                f"{data}: {facts['num_train'] + facts['num_validation']:,} training and {facts['num_test']:,} test rows,"
                f" {facts['num_labels']:,} labels, {facts['cardinality']:.1f} a row, {facts['num_features']:,} features;"
                f" {', '.join(f'{count} methods {model}' for model, count in methods.items())}, {len(seeds)} seeds;"
                f" batches of {settings['batch_size'] or 'up to 128'}, {settings['steps']} steps or 8 epochs at most;"
                f" {', '.join(f'{count} cells on {device}' for device, count in devices.most_common())}"
            )
    return lines


def best_table(few: Statistics) -> str:
    """Groups in which each has the best mean."""
    rows = [
        [f"{metric}, {rule}", *(str(few["tests"][rule][metric]["best_in"][name]) for name in PAPER)]
        for metric in PAPER_METRICS
        for rule in RULES
    ]
    return markdown_table(["", *(few["titles"][name] for name in PAPER)], rows)


def leads(few: Statistics) -> list[str]:
    """ZLPR against each other loss, mean difference in points and groups won : lost."""
    lines = []
    for rule in RULES:
        for metric in ("SubACC", *F1S, "AvgPrec", "RankLoss"):
            rows = few["values"][rule][metric].values()
            wins = few["tests"][rule][metric]["plain_wins"]
            texts = [
                f"{few['titles'][name]} {100 * np.mean([row['zlpr']['mean'] - row[name]['mean'] for row in rows]):+.1f}"
                f" ({wins[name][0]} : {wins[name][2]})"
                for name in PAPER[1:]
            ]
            lines.append(f"{metric}, {rule}: ZLPR over {', '.join(texts)}")
    return lines


def value_tables(every: Statistics, names: Sequence[str], rules: Sequence[str]) -> list[str]:
    """Groups by methods, the best mean in bold."""
    parts = []
    methods = [name for name in names if name in every["methods"]]
    for rule in rules:
        for metric in ("SubACC", "micro-F1", "macro-F1", "AvgPrec"):
            rows = []
            for group in every["groups"]:
                row = every["values"][rule][metric][group]
                best = max((cell["mean"] for name, cell in row.items() if name in methods), default=0.0)
                line = [group]
                for name in methods:
                    text = f"{100 * row[name]['mean']:.1f} ± {100 * row[name]['std']:.1f}" if name in row else "-"
                    line.append(f"**{text}**" if name in row and row[name]["mean"] >= best - 1e-12 else text)
                rows.append(line)
            shown = markdown_table(["", *(every["titles"][name] for name in methods)], rows)
            parts += [f"{metric}, {rule} rule, percent:", "", shown, ""]
    return parts
