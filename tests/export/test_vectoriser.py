"""The references of the vectoriser: the same features as the model's own, in Python and in JavaScript."""

import json
import runpy
import shutil
import subprocess
import sys
import unicodedata

import pytest

from manyhot.export.vectoriser import REFERENCES, reference, write_vectoriser
from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.settings import TrainSettings
from training.problems import text_examples

ODD = [
    "",
    "   ",
    "  Bread\tand\u00a0SALT, bread  salt! ",
    "\u0130stanbul na\u00efve \u03a3\u03a3 \u1e9e caf\u00e9 cafe\u0301",
    "\U0001f600 sm\U0001f600ile \U0001d7d8 \u00bd \u2160 \u0663",
    "a\x1cb\x1d\x1e\x1fc\x85d\ufeffe\u200bf\u2028g\u3000h _under_score",
    "salt-bread/salt's x2 3.14",
]


def inputs_of(texts):
    settings = TrainSettings(ngrams=3, char_ngrams=4, min_count=1)
    examples = text_examples(len(texts))
    from dataclasses import replace

    return TextInputs.fit(replace(examples, texts=list(texts)), settings)[0]


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """Inputs fitted on odd and on plain texts, and the folder they were written to."""
    texts = [*ODD, *text_examples(40).texts]
    folder = tmp_path_factory.mktemp("vectoriser")
    inputs = inputs_of(texts)
    write_vectoriser(inputs, folder)
    return inputs, folder, [*texts, "nothing known: zzz", "Salt SALT salt bread noise1"]


def same(inputs, texts, found):
    wanted = inputs.rows(texts)
    for row, own in enumerate(found):
        columns, values = wanted[row].indices.tolist(), wanted[row].data.tolist()
        order = sorted(range(len(columns)), key=columns.__getitem__)
        assert [column for column, _ in own] == [columns[place] for place in order], texts[row]
        assert [value for _, value in own] == pytest.approx([values[place] for place in order], rel=1e-5)


def test_the_python_reference_gives_the_features_of_the_model(case):
    inputs, folder, texts = case
    module = runpy.run_path(str(folder / "vectoriser.py"))
    data = module["load"](folder / "vectoriser.json")
    same(inputs, texts, [module["features"](data, text) for text in texts])


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_javascript_reference_gives_the_features_of_the_model(case):
    inputs, folder, texts = case
    (folder / "texts.json").write_text(json.dumps(texts))
    script = (
        "import { load, features } from './vectoriser.mjs'; import { readFileSync } from 'node:fs';"
        "const data = load('vectoriser.json');"
        "console.log(JSON.stringify(JSON.parse(readFileSync('texts.json', 'utf8')).map((text) => features(data, text))))"
    )
    (folder / "run.mjs").write_text(script)
    done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True, check=True)
    same(inputs, texts, json.loads(done.stdout))


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_javascript_finds_the_words_of_python_in_every_character(tmp_path):
    """Every character that both versions of Unicode know, between two letters."""
    points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000 and unicodedata.category(chr(p)) not in ("Cn", "Co")]
    source = next(line for line in reference("vectoriser.mjs").splitlines() if line.startswith("const WORD"))
    script = (
        f"{source}\nimport {{ readFileSync }} from 'node:fs';"
        "const texts = JSON.parse(readFileSync('points.json', 'utf8')).map((p) => `a${String.fromCodePoint(p)}b`);"
        "console.log(JSON.stringify(texts.map((text) => (text.toLowerCase().match(WORD) ?? []).length)))"
    )
    (tmp_path / "run.mjs").write_text(script)
    (tmp_path / "points.json").write_text(json.dumps(points))
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    from manyhot.training.rows.inputs.words import WORD

    wrong = [
        hex(point)
        for point, count in zip(points, json.loads(done.stdout), strict=True)
        if len(WORD.findall(f"a{chr(point)}b".lower())) != count
    ]
    assert wrong == []


def test_the_references_are_short():
    for name in REFERENCES:
        lines = [line for line in reference(name).splitlines() if line.strip() and not line.strip().startswith(("//", '"""'))]
        assert len(lines) <= 34, (name, len(lines))
    assert sys.version_info >= (3, 11)
