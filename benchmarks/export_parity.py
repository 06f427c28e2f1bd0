"""Exported models beside the model itself: decisions on every test row, size, load time, latency on one core.

    python -m benchmarks.export_parity --data FOLDER --models FOLDER [--page PAGE]

Models that are not in the folder of models yet are trained there first. Needs the extra ``onnx``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.text_sets import SETS
from manyhot import TrainSettings, load_model, read_examples
from manyhot.data.examples import Examples
from manyhot.export.graph import graph_inputs
from manyhot.export.huggingface_folder import export_huggingface
from manyhot.export.onnx_file import compare_onnx, export_onnx, open_session
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.train import train

CELLS = {
    ("reuters21578", "linear"): {"calibrate": "platt"},
    ("reuters21578", "bag"): {"epochs": 5, "calibrate": "per-label"},
    ("reuters21578", "encoder"): {"epochs": 1},
    ("goemotions", "linear"): {"calibrate": "platt"},
    ("goemotions", "bag"): {"epochs": 5, "calibrate": "per-label"},
    ("goemotions", "encoder"): {"epochs": 1},
    ("yeast", "linear"): {"calibrate": "platt"},
    ("yeast", "mlp"): {"calibrate": "isotonic"},
}
REPEATS = 30


def examples_of(data: Path, name: str) -> tuple[Examples, Examples]:
    """Training and test rows."""
    if name != "yeast":
        return SETS[name](data)
    rows = [read_examples(data / "yeast" / f"yeast-{part}.arff.gz") for part in ("train", "test")]
    return rows[0], rows[1]


def tiny_encoder(texts: list[str], folder: Path) -> Path:
    """A small BERT with random weights and a word-piece tokeniser fitted on the texts: no download."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=8000, special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=130,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def model_of(data: Path, models: Path, name: str, body: str) -> tuple[TrainedModel, Examples]:
    """The model, trained unless it is there, and the test rows."""
    rows, test = examples_of(data, name)
    folder = models / f"{name}-{body}"
    if not (folder / "model.json").exists():
        more: dict[str, Any] = dict(CELLS[name, body])
        if body == "encoder":
            more |= {"encoder": str(tiny_encoder(list(rows.texts or []), models / f"{name}-start")), "max_tokens": 64}
            more |= {"learning_rate": 1e-3}
            rows = rows[:6000]
        train(rows, TrainSettings(model=body, threads=1, **more)).save(folder)
    return load_model(folder), test


def milliseconds(run: Callable[[], Any], repeats: int = REPEATS) -> float:
    """The median."""
    run()
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        taken.append(1000 * (time.perf_counter() - started))
    return statistics.median(taken)


def load_seconds(code: str) -> float:
    """Seconds to load in a fresh process, imports left out."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])


def size_of(folder: Path) -> float:
    """Megabytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def measure(data: Path, models: Path, name: str, body: str) -> list[dict[str, Any]]:
    """A line for each form of one model."""
    model, test = model_of(data, models, name, body)
    one, many = test[:1], test[:256]
    bundle = models / f"{name}-{body}"
    timed = "import time; {0}; t=time.perf_counter(); {1}; print(time.perf_counter()-t)"
    lines = [
        {
            "form": "manyhot",
            "size": size_of(bundle),
            "load": load_seconds(timed.format("import torch; from manyhot import load_model", f"load_model({str(bundle)!r})")),
            "one": milliseconds(lambda: model.predict(one)),
            "many": milliseconds(lambda: model.predict(many), 10),
        }
    ]
    with tempfile.TemporaryDirectory() as draft:
        folder = Path(draft) / "onnx"
        export_onnx(model, folder, rows=test[:200])
        parity = compare_onnx(model, (folder / "model.onnx").read_bytes(), test)
        session = open_session(str(folder / "model.onnx"))

        def run(rows: Examples) -> Any:
            for batch in graph_inputs(model, rows, batch_size=256):
                given = {each.name: part.numpy() for each, part in zip(session.get_inputs(), batch, strict=True)}
                session.run(["decisions"], given)

        file = str(folder / "model.onnx")
        load = timed.format("import onnxruntime", f"onnxruntime.InferenceSession({file!r})")
        lines.append(
            {
                "form": "onnxruntime",
                "size": size_of(folder),
                "load": load_seconds(load),
                "one": milliseconds(lambda: run(one)),
                "many": milliseconds(lambda: run(many), 10),
                "rows": parity.rows,
                "decisions": parity.decisions,
                "different": parity.different,
                "logits": parity.logits,
                "probabilities": parity.probabilities,
            }
        )
        if body == "encoder":
            lines.append(_pipeline_line(model, test, Path(draft) / "hf"))
    return [{"set": name, "body": body, **line} for line in lines]


def _pipeline_line(model: TrainedModel, test: Examples, folder: Path) -> dict[str, Any]:
    from transformers import pipeline

    parity = export_huggingface(model, folder, rows=test)
    stock: Any = pipeline("text-classification", model=str(folder), trust_remote_code=True, top_k=None, device="cpu")
    texts = list(test.texts or [])
    most = {"truncation": True, "max_length": 64}
    code = "import time, warnings; warnings.simplefilter('ignore'); from transformers import pipeline; t=time.perf_counter();"
    code += f"pipeline('text-classification', {str(folder)!r}, trust_remote_code=True); print(time.perf_counter()-t)"
    return {
        "form": "transformers pipeline",
        "size": size_of(folder),
        "load": load_seconds(code),
        "one": milliseconds(lambda: stock(texts[:1], **most)),
        "many": milliseconds(lambda: stock(texts[:256], batch_size=32, **most), 5),
        "rows": parity.rows,
        "decisions": parity.decisions,
        "different": parity.different,
    }


def page(lines: list[dict[str, Any]], command: str) -> str:
    """The result page."""
    import onnxruntime

    head = "| set | body | form | rows | decisions | different | MB | load s | 1 row ms | 256 rows ms |"
    table = [head, "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for line in lines:
        counts = [f"{line[key]:,}" if key in line else "" for key in ("rows", "decisions", "different")]
        times = [f"{line['size']:.2f}", f"{line['load']:.3f}", f"{line['one']:.2f}", f"{line['many']:.1f}"]
        table.append("| " + " | ".join([line["set"], line["body"], line["form"], *counts, *times]) + " |")
    far = max(line["logits"] for line in lines if "logits" in line)
    probs = max(line["probabilities"] or 0 for line in lines if "probabilities" in line)
    about = (
        f"{time.strftime('%Y-%m-%d')}, {platform.processor() or platform.machine()}, one core, Python"
        f" {platform.python_version()}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}.\n"
        "Other work ran on the machine; times are medians and not more than a rough guide."
    )
    return "\n".join(
        [
            "# Exported models beside the model",
            "",
            "Every test row of each set, decided by the model, by onnxruntime on its exported graph and, for encoders,",
            "by a stock transformers pipeline cut at 0.5 on its exported folder. `different` counts decisions that are",
            "not the model's own.",
            f"Largest difference: logits {far:.1e} (relative to max(1, |logit|)), probabilities {probs:.1e}.",
            "",
            *table,
            "",
            "Times begin with texts or raw features and end with decisions; for onnxruntime the features are made by",
            "manyhot's own vectoriser. Sizes are whole folders. Loading is measured in a fresh process after the import of",
            "manyhot, onnxruntime or transformers; packages that loading itself imports count, which is most of the time of",
            "mlp, bag and encoder. The encoder is a BERT of two layers of width 64 with random start weights, trained for one",
            "epoch on at most 6,000 rows: it shows parity, not quality.",
            "",
            about,
            "",
            f"    {command}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--only", help="a set and a body, like yeast-mlp")
    given = parser.parse_args()
    torch.set_num_threads(1)
    store = given.models / "export.jsonl"
    lines: list[dict[str, Any]] = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    for name, body in CELLS:
        if given.only in (None, f"{name}-{body}") and not any(line["set"] == name and line["body"] == body for line in lines):
            found = measure(given.data, given.models, name, body)
            lines += found
            with store.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in found)
    text = page(lines, "python -m benchmarks.export_parity --data DATA --models MODELS --page PAGE")
    if given.page:
        given.page.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
