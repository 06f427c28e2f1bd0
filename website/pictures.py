"""The pictures of the start page: ``python website/pictures.py --data FOLDER`` (make docs-pictures) makes them anew.

Commands run in a folder under build/, and what they print on a terminal becomes an SVG; reports and pages are photographed by
Chromium without a window. Nothing is drawn by hand.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES, WORK = ROOT / "docs" / "images" / "start", ROOT / "build" / "pictures"
COLUMNS = 96
# rich's template asks a font server for its font; without these rules it takes a font that the reader has.
FONT_RULES = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def terminal(words: list[str]) -> str:
    """What a command prints on a terminal, colours and all; the last state of lines that are drawn over."""
    ours, theirs = pty.openpty()
    settings = {"COLUMNS": str(COLUMNS), "LINES": "60", "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        [sys.executable, "-m", "manyhot", *words], stdout=theirs, stderr=theirs, cwd=WORK, env=environment, close_fds=True
    )
    os.close(theirs)
    found = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        found += part
    if process.wait():
        raise RuntimeError(found.decode(errors="replace"))
    return found.decode(errors="replace")


def last_state(printed: str) -> list[Text]:
    """Lines as a person sees them in the end: progress that was drawn over is gone."""
    lines: list[str] = []
    row = 0
    for piece in printed.replace("\r\n", "\n").split("\n"):
        ups = piece.count("\x1b[1A")
        row = max(row - ups, 0)
        text = piece.rpartition("\x1b[2K")[2].rpartition("\r")[2] if "\x1b[2K" in piece or "\r" in piece else piece
        for code in ("\x1b[1A", "\x1b[?25l", "\x1b[?25h", "\x1b[2K"):
            text = text.replace(code, "")
        del lines[row:]
        lines.append(text)
        row = len(lines)
    found = [Text.from_ansi(line) for line in lines]
    while found and not found[-1].plain.strip():
        found.pop()
    return found


def draw(name: str, calls: list[str], limit: int = 60) -> None:
    """Run commands and keep the terminal as ``name.svg``."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for call in calls:
        console.print(Text.assemble(("$ ", "bold green"), (f"manyhot {call}", "bold")))
        lines = last_state(terminal(call.split()))
        for line in lines[:limit]:
            console.print(line)
        if len(lines) > limit:
            console.print(Text(f"... {len(lines) - limit} more lines", "dim"))
        console.print()
    svg = console.export_svg(title="", theme=DIMMED_MONOKAI, unique_id=name)
    svg = FONT_RULES.sub("", svg).replace(str(WORK), ".")
    (IMAGES / f"{name}.svg").write_text(svg, encoding="utf-8")


def photograph(page: Path, name: str, height: int) -> None:
    """A page as ``name.png``."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        raise RuntimeError("photographs need chromium: apt install chromium")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size=1000,{height}"]
    subprocess.run([chromium, *flags, f"--screenshot={IMAGES / f'{name}.png'}", page.as_uri()], check=True, capture_output=True)


def cooking(data: Path) -> None:
    """Titles of questions and their tags as a CSV file: cooking_stackexchange (CC BY-SA 3.0)."""
    with gzip.open(data / "cooking_stackexchange" / "cooking.stackexchange.txt.gz", "rt", encoding="utf-8") as stream:
        rows = [line.split() for line in stream]
    for file, part in (("cooking.csv", rows[:12_404]), ("held-out.csv", rows[12_404:])):
        with (WORK / file).open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            writer.writerow(["title", "tags"])
            for words in part:
                tags = [word.removeprefix("__label__") for word in words if word.startswith("__label__")]
                writer.writerow([" ".join(word for word in words if not word.startswith("__label__")), ";".join(tags)])
    (WORK / "new.csv").write_text("title\nhow do i keep bread from going stale\ncan i freeze raw eggs in their shell\n")


def people(data: Path) -> None:
    """Sentences with marked names: WNUT 2017 (CC BY 4.0)."""
    for source, target in (("wnut17train.conll.gz", "people.conll"), ("emerging.dev.conll.gz", "people-dev.conll")):
        (WORK / target).write_bytes(gzip.decompress((data / "wnut17" / source).read_bytes()))
    (WORK / "new.txt").write_text("Taylor Swift plays in Paris on Friday\nI miss New York and my iPhone\n")


def main(data: Path, only: list[str]) -> None:
    """The pictures of training from a file, of spans, or both."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    if "spans" in only:
        people(data)
        train = "train --task spans people.conll --validation-file people-dev.conll --epochs 4"
        draw("spans", [train, "predict runs/people new.txt"], limit=24)
    if "file" in only:
        cooking(data)
        draw("inspect", ["inspect cooking.csv"], limit=24)
        draw("train", ["train cooking.csv --test held-out.csv"])
        draw("predict", ["predict runs/cooking new.csv --probabilities"])
        photograph(WORK / "runs" / "cooking" / "test" / "report.html", "report", 900)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=("file", "spans"), default=["file", "spans"])
    given = parser.parse_args()
    main(given.data, given.only)
