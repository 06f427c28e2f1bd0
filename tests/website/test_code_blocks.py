"""Python on the pages that is not a doctest runs too: with small stand-ins for what the reader has already."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import manyhot
from training.problems import text_examples

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# Pages whose blocks other tests run, because they need other packages.
ELSEWHERE = {
    "docs/export.md": "tests/export/test_page.py",
    "docs/scale.md": "tests/distributed/test_engines.py",
    "docs/coming-from/huggingface.md": "tests/integrations/huggingface/test_coming_from_page.py",
}
# What a page of several processes is tried with here: one process on a CPU, and few labels.
ONE_PROCESS = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from manyhot import LinearHead, LinearScores, SparseLabels, gather_rows, zlpr_loss
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
hidden, own_weight, own_bias = torch.randn(4, 768, requires_grad=True), torch.randn(9, 768, requires_grad=True), torch.zeros(9)
labels = own_labels = SparseLabels.from_lists([[0, 3], [], [8], [2]], num_labels=9)
encoder, own_rows = torch.nn.Linear(5, 768), torch.randn(4, 5)
"""


def blocks():
    """Every block of Python without prompts, by page."""
    pages = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    found = {}
    for page in pages:
        for indent, code in BLOCK.findall(page.read_text(encoding="utf-8")):
            if ">>> " not in code:
                found.setdefault(page.relative_to(ROOT).as_posix(), []).append(
                    re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
                )
    return found


BLOCKS = blocks()


def of_losses():
    """Names that blocks about losses use: a model with its rows, and the functions of others."""
    logits, labels = torch.randn(4, 3, requires_grad=True), torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])

    def stock(logits, labels, **_):
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.float())

    return {
        "torch": torch,
        "manyhot": manyhot,
        "model": torch.nn.Linear(2, 3),
        "x": torch.randn(4, 2),
        "logits": logits,
        "labels": labels,
        "positives": torch.ones(3),
        "negatives": torch.ones(3),
        "threshold": 0.5,
        "y_true": labels,
        "y_pred": logits,
        "multilabel_categorical_crossentropy": lambda y_true, y_pred: stock(y_pred, y_true),
        "AsymmetricLoss": lambda **_: stock,
        "torchvision": SimpleNamespace(ops=SimpleNamespace(sigmoid_focal_loss=stock)),
    }


def of_scikit_learn():
    """Texts and tags, and what the block before imports."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MultiLabelBinarizer

    texts = ["salt the water", "slice the bread", "bread with salt", "boil the water"] * 10
    tags = [["salt"], ["bread"], ["salt", "bread"], []] * 10
    parts = (TfidfVectorizer, LogisticRegression, OneVsRestClassifier, make_pipeline, MultiLabelBinarizer)
    named = {part.__name__: part for part in parts}
    return {**named, "ManyhotClassifier": manyhot.ManyhotClassifier, "texts": texts, "tags": tags, "new": texts[:2]}


def of_reports():
    """A trained model and rows it was not trained on."""
    examples = text_examples(60)
    return {"model": manyhot.train(examples, manyhot.TrainSettings(epochs=1)), "test": examples}


NAMES = {
    "docs/coming-from/asl.md": of_losses,
    "docs/coming-from/bce.md": of_losses,
    "docs/coming-from/bert4keras.md": of_losses,
    "docs/coming-from/focal.md": of_losses,
    "docs/coming-from/scikit-learn.md": of_scikit_learn,
    "docs/report.md": of_reports,
}


def test_every_block_is_run_somewhere():
    assert set(BLOCKS) == {*NAMES, *ELSEWHERE, "docs/very-many-labels.md"}
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", NAMES)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in BLOCKS[page]:
        exec(compile(code, page, "exec"), NAMES[page]())


def test_blocks_of_several_processes_run_in_one(tmp_path):
    code = "\n".join(BLOCKS["docs/very-many-labels.md"])
    for found, small in (('"cuda", (2, 4)', '"cpu", (1, 1)'), ("10_000_000", "9"), ("dtype=torch.bfloat16, ", "")):
        assert found in code
        code = code.replace(found, small)
    file = tmp_path / "several.py"
    file.write_text(
        f"{ONE_PROCESS}{code}\nassert hidden.requires_grad and own_weight.grad is not None\ndist.destroy_process_group()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
