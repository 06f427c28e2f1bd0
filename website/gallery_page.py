"""The measured parts of docs/gallery/index.md: ``python website/gallery_page.py`` fills them in from figures.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

SHELF = Path(__file__).resolve().parents[1] / "docs" / "gallery"
PAGE, FIGURES = SHELF / "index.md", SHELF / "figures.json"
SHOWN = ("micro-F1", "macro-F1", "SubACC", "AvgPrec", "P@1", "P@3", "P@5", "PSP@5", "F1", "precision", "recall")
_PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def figures() -> dict[str, Any]:
    """What website/gallery.py measured, by the name of the run."""
    found: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return found


def _values(metrics: list[dict[str, Any]]) -> dict[str, str]:
    known = {each["name"]: each for each in metrics if each["name"] in SHOWN and each.get("value") is not None}
    return {
        name: f"{known[name]['value']:.3f}" + (f" ± {known[name]['half_width']:.3f}" if known[name].get("half_width") else "")
        for name in SHOWN
        if name in known
    }


def _shown(command: str) -> str:
    """A command on lines that fit the page, broken before its flags as a shell allows it."""
    lines = [""]
    for piece in command.replace(" --", "\n--").split("\n"):
        if lines[-1] and len(lines[-1]) + len(piece) > 80:
            lines.append(piece)
        else:
            lines[-1] = f"{lines[-1]} {piece}".strip()
    return " \\\n    ".join(lines)


def part(name: str) -> str:
    """Commands, figures and report of a run."""
    run = figures()[name]
    commands = "\n".join(_shown(f"manyhot {command}") for command in run["commands"])
    values = {"this run": _values(run["metrics"])}
    if "beside" in run:
        values["without a teacher"] = _values(run["beside"])
    columns = list(values["this run"])
    rows = [f"| {words} | {' | '.join(found.get(column, '') for column in columns)} |" for words, found in values.items()]
    seconds = " and ".join(f"{each:.0f}" for each in run["cpu_seconds"])
    lines = ["```", commands, "```", "", f"| test rows | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}", *rows, ""]
    picture = f"![A part of the report of this run](../images/gallery/{name}.png)"
    made = f"{run['date']}, torch {run['versions']['torch']}, Python {run['versions']['python']}"
    lines += [
        f"[The report]({name}/report.html). {seconds} s of CPU time from the command to the report, on one thread;",
        f"{made}.",
        "",
        f"[{picture}]({name}/report.html)",
    ]
    return "\n".join(lines)


def fill(text: str) -> str:
    """The page with its measured parts made anew."""
    return _PART.sub(lambda found: f"{found[1]}\n{part(found[2])}\n\n{found[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
