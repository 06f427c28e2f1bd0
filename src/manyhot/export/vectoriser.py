"""The text vectoriser for other software: a JSON file, and a short reference implementation in Python and in JavaScript."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from manyhot._files import write_whole
from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.inputs.word_starts import STARTS

FILE = "vectoriser.json"
FORMAT = "manyhot-vectoriser-1"
REFERENCES = ("vectoriser.py", "vectoriser.mjs")


def vectoriser_json(inputs: TextInputs) -> dict[str, Any]:
    """The vectoriser in the form that the reference implementations read.

    ``words``, ``starts`` and ``characters`` have ``symbols`` and, for each length of n-grams, sorted ``keys``. The key of an
    n-gram is ``index of its prefix * number of symbols + last symbol``; its index among the keys is its feature. Features
    are numbered across all lengths: words first, then starts, then characters. ``idf`` has the weight of each feature.
    """
    parts = {
        name: {"symbols": runs.symbols, "keys": [keys.tolist() for keys in runs.keys]}
        for name, runs in ((name, getattr(inputs, name)) for name in inputs.parts)
    }
    return {"format": FORMAT, "start_lengths": list(STARTS), **parts, "idf": [float(value) for value in inputs.idf]}


def write_vectoriser(inputs: TextInputs, folder: Path) -> None:
    """Write ``vectoriser.json`` and the reference implementations that read it."""
    content = json.dumps(vectoriser_json(inputs), ensure_ascii=False, separators=(",", ":"))
    write_whole(folder / FILE, content.encode("utf-8", "surrogatepass"))
    for name in REFERENCES:
        write_whole(folder / name, reference(name).encode())


def reference(name: str) -> str:
    """The source of a reference implementation. Python files are stored as ``.py.txt``: no tool takes them for modules."""
    stored = f"{name}.txt" if name.endswith(".py") else name
    return files("manyhot.export").joinpath("reference", stored).read_text(encoding="utf-8")
