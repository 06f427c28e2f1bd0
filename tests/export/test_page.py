"""The program of docs/export.md, as it stands there, reads the exported files without manyhot."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from manyhot.export import export_onnx

PAGE = Path(__file__).parents[2] / "docs" / "export.md"


def test_the_program_of_the_page_predicts_what_the_model_predicts(trained, tmp_path):
    model, examples = trained["linear"]
    export_onnx(model, tmp_path, rows=examples)
    program = re.search(r"```python\n(import json.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    assert '"boil the egg"' in program
    call = [sys.executable, "-W", "ignore", "-c", program.replace('"boil the egg"', '"salt and bread"')]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin"})
    wanted = [model.label_names[label] for label in model.predict(["salt and bread"]).lists()[0]]
    assert wanted
    assert sorted(eval(done.stdout)) == sorted(wanted)
