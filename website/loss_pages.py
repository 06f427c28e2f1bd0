"""The generated parts of docs/losses/NAME.md, from the catalog of losses: ``python website/loss_pages.py`` rewrites them.

A page is written by hand, except for the lines between ``<!-- made: PART -->`` and ``<!-- end -->``. For a new loss the script
creates a page with empty sections; the pages of the other losses show what belongs there.
"""

from __future__ import annotations

import re
from pathlib import Path

from manyhot import LOSSES, LossInfo

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "losses"
FORMULAS = ROOT / "docs" / "losses.md"
EVIDENCE = ROOT / "benchmarks" / "results" / "compare-groups-2026-11-15.md"
SECTIONS = (
    *("Equation", "Gradient", "When", "When not", "Decision", "Probabilities", "Options"),
    *("Neighbours", "Names elsewhere", "References"),
)
DECISIONS = {
    "zero": "Predict the labels with `s > 0`. Neither the number of labels nor a threshold has to be known. A threshold tuned"
    " on held-out rows is usually better for F1 ([decisions](../decisions.md)).",
    "threshold": "Predict the labels with `s > s0`, where `s0` is the threshold, given or learned.",
    "top-k": "Predict the `k` best labels. The scores have no natural zero: `k` must be known, or a threshold must be tuned on"
    " held-out rows.",
    "argmax": "Predict the label with the largest score.",
    "tuned": "Tune a threshold on held-out rows, because the scores have no natural zero.",
}
LINKS = {
    "hard": "`sigma(s)`, which is approximate. Check it with the reliability curve of a report, and fit a calibration"
    " (`manyhot tune`, `fit_calibration`) if probabilities matter.",
    "soft": "`sigma(2 s)`, which recovers the soft labels exactly.",
    "softmax": "They are `softmax(s)` and add up to 1 in a row.",
    None: "None: the scores only rank. Fit a calibration on held-out rows (`manyhot tune`, `fit_calibration`) to get them.",
}
FEATURES = {
    "soft_labels": "soft labels",
    "smoothing": "`smoothing`",
    "where": "unknown labels (`where`)",
    "pos_weight": "`pos_weight`",
    "rdrop": "R-Drop",
    "learned_threshold": "a learned threshold",
}
# The names of a loss in the comparison, if they differ from its title; one row for each name.
METHODS = {"tlpr": ("ZLPR, learned threshold",), "zlpr": ("ZLPR", "ZLPR, automatic weight")}
_PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def formula(info: LossInfo) -> str:
    """The formula of the table of losses."""
    for line in FORMULAS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) == 6 and re.match(rf"`{info.name}`", cells[3]):
            return cells[1]
    raise ValueError(f"docs/losses.md has no row for {info.name}")


def equation(info: LossInfo) -> str:
    """The formula, and the names in Python and on the command line."""
    function = info.function.__name__
    return (
        f"For one row: {formula(info)}\n\n"
        f"[`{function}`](../api/losses.md#manyhot.{function}), "
        f"[`{info.module.__name__}`](../api/losses.md#manyhot.{info.module.__name__}), "
        f"`manyhot train --loss {info.name}`. The [table of all losses](../losses.md) explains the notation."
    )


def gradient(info: LossInfo) -> str:
    """The picture."""
    return f"![Gradient of {info.title}](../images/losses/{info.name}.svg)"


def decision(info: LossInfo) -> str:
    """The natural decision."""
    return DECISIONS[info.decision]


def link(info: LossInfo) -> str:
    """The probabilities of models trained on hard and on soft labels."""
    if info.link == info.soft_link:
        return LINKS[info.link]
    return f"For a model trained on hard labels: {LINKS[info.link]} For one trained on soft labels: {LINKS[info.soft_link]}"


def options(info: LossInfo) -> str:
    """The options of the loss itself, and which other features it supports."""
    lines = ["It has no options of its own."]
    if info.options:
        lines = ["| option | default | what it does |", "|---|---|---|"]
        lines += [f"| `{each.name}` | {each.default} | {each.summary} |" for each in info.options]
    takes = [words for feature, words in FEATURES.items() if info.why_not(feature) is None]
    takes += ["lazy scores of very many labels"] * info.lazy + ["span grids"] * info.spans
    lines += ["", f"It takes {', '.join(takes)}."]
    reasons = {words: reason for feature, words in FEATURES.items() if (reason := info.why_not(feature))}
    if reasons:
        lines += ["", "Not supported:", ""]
        lines += [f"- {reason}" if words in reason else f"- {words}: {reason}" for words, reason in reasons.items()]
    return "\n".join(lines)


def ranks() -> dict[str, dict[str, list[str]]]:
    """The average ranks of the comparison: rule, then method, then the numbers of the columns."""
    found: dict[str, dict[str, list[str]]] = {}
    text = EVIDENCE.read_text(encoding="utf-8").partition("## 5. ")[2].partition("## 6. ")[0]
    for rule, part in zip(
        ("natural", "tuned"), re.split(r"^(?:Natural|Tuned) rule.*$", text, flags=re.MULTILINE)[1:], strict=True
    ):
        rows = [
            [cell.strip(" *") for cell in line.strip("| ").split(" | ")] for line in part.splitlines() if line.startswith("| ")
        ]
        found[rule] = {row[0]: row[1:] for row in rows if len(row) == 7}
    return found


def evidence(info: LossInfo) -> str:
    """Its average ranks in the comparison, or a sentence that it was not part of it."""
    methods = METHODS.get(info.name, (info.title,))
    page = "[22 groups of tabular data](../../benchmarks/results/compare-groups-2026-11-15.md)"
    lines = [f"Average rank among 19 methods on {page}, 1 is best:", ""]
    lines += ["| | SubACC | MLC-F1 | micro-F1 | macro-F1 | AvgPrec | RankLoss |", "|---|---:|---:|---:|---:|---:|---:|"]
    rows = [
        f"| {method}, {rule} rule | {' | '.join(found[method])} |"
        for method in methods
        for rule, found in ranks().items()
        if method in found
    ]
    return "\n".join([*lines, *rows]) if rows else f"It was not among the 19 methods of the comparison on {page}."


PARTS = {each.__name__: each for each in (equation, gradient, decision, link, options, evidence)}


# The section of each part.
PLACES = {
    "Equation": "equation",
    "Gradient": "gradient",
    "When": "evidence",
    "Decision": "decision",
    "Probabilities": "link",
    "Options": "options",
}


def begun(info: LossInfo) -> str:
    """The page of a new loss: all sections, with empty generated parts."""
    title, summary = (text[:1].upper() + text[1:] for text in (info.title, info.summary))
    lines = [f"# {title}", "", f"{summary}."]
    for section in SECTIONS:
        lines += ["", f"## {section}"]
        if section in PLACES:
            lines += ["", f"<!-- made: {PLACES[section]} -->", "<!-- end -->"]
    return "\n".join(lines) + "\n"


def fill(text: str, info: LossInfo) -> str:
    """A page with its generated parts rewritten."""
    return _PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]](info)}\n\n{found[3]}", text)


if __name__ == "__main__":
    for name, info in LOSSES.items():
        path = PAGES / f"{name}.md"
        text = path.read_text(encoding="utf-8") if path.exists() else begun(info)
        path.write_text(fill(text, info), encoding="utf-8")
