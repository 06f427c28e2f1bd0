"""Exported models beside the model itself: decisions on every row, size, load time, latency on one core.

    python -m benchmarks.export_parity --data FOLDER --models FOLDER [--page PAGE]

Models that are not in the folder of models yet are trained there, exported, and compared on every row; what the comparison gave
is kept there too, and so are sizes and times. Several processes may share the folder, each with its own ``--only``; a last one
makes the page. Needs the extras ``onnx`` and ``text``.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.text_sets import SETS
from benchmarks.tuning import processor
from manyhot import TrainSettings, load_model, read_examples, zlpr_loss
from manyhot.data.examples import Examples, concatenate_examples
from manyhot.export.graph import graph_inputs
from manyhot.export.huggingface_folder import export_huggingface, pipeline_scores
from manyhot.export.onnx_file import Parity, compare_onnx, compare_parts, export_onnx, open_session
from manyhot.integrations.huggingface import from_manyhot, save_folded, to_manyhot
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.inputs.tokens import TokenInputs
from manyhot.training.rows.train import train

CELLS: dict[tuple[str, str], dict[str, Any]] = {
    ("reuters21578", "linear"): {"calibrate": "platt"},
    ("reuters21578", "bag"): {"epochs": 5, "calibrate": "per-label"},
    ("reuters21578", "wide"): {"epochs": 5, "hidden": 64, "loss": "zlpr"},
    ("reuters21578", "tree"): {},
    ("reuters21578", "encoder"): {"epochs": 6},
    ("reuters21578", "classifier"): {},
    ("goemotions", "linear"): {"calibrate": "platt"},
    ("goemotions", "bag"): {"epochs": 5, "calibrate": "per-label"},
    ("goemotions", "wide"): {"epochs": 5, "hidden": 64, "loss": "zlpr"},
    ("goemotions", "tree"): {},
    ("goemotions", "encoder"): {"epochs": 6},
    ("goemotions", "classifier"): {},
    ("yeast", "linear"): {"calibrate": "platt"},
    ("yeast", "mlp"): {"calibrate": "isotonic"},
}
REPEATS = 30
TOKENS = 64
# Rows that one pipeline decides.
PART = 8192
PIPELINE = "transformers pipeline"
ROUNDING = (
    "A decision of onnxruntime that differs has a score within rounding of its threshold: the two logits lie on either side of",
    "it, and no further apart than the largest difference above. The pipeline's head has the rule folded into its float32",
    "weights, which rounds as well. An export that meets such a row among those it is compared on writes nothing.",
    "",
)


@functools.cache
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


def classifier(rows: Examples, start: Path, steps: int = 200) -> TrainedModel:
    """A stock sequence classifier of transformers, trained by a loop of its own for a few steps."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(start)
    torch.manual_seed(0)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        start, num_labels=rows.num_labels, id2label=dict(enumerate(rows.label_names))
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    texts, labels, draw = list(rows.texts or []), rows.labels.dense(), torch.Generator().manual_seed(0)
    for _ in range(steps):
        some = torch.randint(len(texts), (32,), generator=draw).tolist()
        batch = tokenizer([texts[row] for row in some], padding=True, truncation=True, max_length=TOKENS, return_tensors="pt")
        batch.pop("token_type_ids", None)
        optimizer.zero_grad()
        zlpr_loss(network(**batch).logits, labels[some]).backward()
        optimizer.step()
    return to_manyhot(network.eval(), tokenizer, max_tokens=TOKENS)


def model_of(data: Path, models: Path, name: str, body: str) -> tuple[TrainedModel, Examples]:
    """The model, trained unless it is there, and all rows: those it was trained on, then those for the test."""
    rows, test = examples_of(data, name)
    folder = models / f"{name}-{body}"
    if not (folder / "model.json").exists():
        more: dict[str, Any] = dict(CELLS[name, body])
        start = models / f"{name}-start"
        if body in ("encoder", "classifier") and not start.exists():
            tiny_encoder(list(rows.texts or []), start)
        if body == "classifier":
            classifier(rows[:6000], start).save(folder)
        else:
            if body == "encoder":
                more |= {"encoder": str(start), "max_tokens": TOKENS, "learning_rate": 1e-3}
            train(rows[:6000] if body == "encoder" else rows, TrainSettings(model=body, threads=1, **more)).save(folder)
    return load_model(folder), concatenate_examples([rows, test])


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


def compared(model: TrainedModel, rows: Examples, folder: Path) -> list[dict[str, Any]]:
    """Export the model to folders beside its own, and compare each form with it on all rows."""
    try:
        export_onnx(model, folder.with_name(f"{folder.name}-onnx"), rows=rows)
    except ValueError as error:
        return [{"form": "onnxruntime", "refused": str(error).removeprefix("export: ")}]
    content = (folder.with_name(f"{folder.name}-onnx") / "model.onnx").read_bytes()
    lines = [{"form": "onnxruntime", **compare_onnx(model, content, rows)._asdict()}]
    if isinstance(model.inputs, TokenInputs):
        lines.append({"form": PIPELINE, **_pipeline_parity(model, rows, folder.with_name(f"{folder.name}-hf"))._asdict()})
    return lines


def _pipeline_parity(model: TrainedModel, rows: Examples, folder: Path) -> Parity:
    if model.shape["body"] == "classifier":
        network, tokenizer = from_manyhot(model)
        save_folded(network, tokenizer, model.rule, folder, texts=list(rows.texts or []))
    else:
        export_huggingface(model, folder, rows=rows)
    answers = []
    for start in range(0, len(rows), PART):
        texts = list(rows[start : start + PART].texts or [])
        scores = pipeline_scores(folder, texts, model.label_names, max_tokens=TOKENS)
        # The logits of the folder are moved by the rule; NaN is not compared.
        answers.append({"decisions": scores > 0.5, "logits": torch.full_like(scores, float("nan"))})
    return compare_parts(model, rows, answers, batch_size=PART)


def times(model: TrainedModel, rows: Examples, folder: Path, form: str) -> dict[str, Any]:
    """Size in MB, seconds to load, milliseconds for one row and for 256."""
    one, many = rows[-256:][:1], rows[-256:]
    timed = "import time; {0}; t=time.perf_counter(); {1}; print(time.perf_counter()-t)"
    if form == "manyhot":
        code = timed.format("import torch; from manyhot import load_model", f"load_model({str(folder)!r})")
        return {"size": size_of(folder), "load": load_seconds(code), **_latency(model.predict, one, many)}
    if form == "onnxruntime":
        place = folder.with_name(f"{folder.name}-onnx")
        session = open_session(str(place / "model.onnx"))

        def run(some: Examples) -> None:
            for batch in graph_inputs(model, some, batch_size=256):
                given = {each.name: part.numpy() for each, part in zip(session.get_inputs(), batch, strict=True)}
                session.run(["decisions"], given)

        code = timed.format("import onnxruntime", f"onnxruntime.InferenceSession({str(place / 'model.onnx')!r})")
        return {"size": size_of(place), "load": load_seconds(code), **_latency(run, one, many)}
    from transformers import pipeline

    place = folder.with_name(f"{folder.name}-hf")
    stock: Any = pipeline("text-classification", model=str(place), trust_remote_code=True, top_k=None, device="cpu")

    def ask(some: Examples) -> None:
        stock(list(some.texts or []), batch_size=32, truncation=True, max_length=TOKENS)

    code = "import time, warnings; warnings.simplefilter('ignore'); from transformers import pipeline; t=time.perf_counter();"
    code += f"pipeline('text-classification', {str(place)!r}, trust_remote_code=True); print(time.perf_counter()-t)"
    return {"size": size_of(place), "load": load_seconds(code), **_latency(ask, one, many)}


def cell(data: Path, folder: Path, name: str, body: str) -> list[dict[str, Any]]:
    """The lines of one model: what was kept of them, and the rest measured now."""
    together, timed = (folder.with_name(f"{folder.name}-{what}.json") for what in ("compared", "times"))
    if not timed.exists():
        model, rows = model_of(data, folder.parent, name, body)
        if not together.exists():
            together.write_text(json.dumps(compared(model, rows, folder)))
        found = {
            line["form"]: times(model, rows, folder, line["form"])
            for line in [{"form": "manyhot"}, *json.loads(together.read_text())]
            if "refused" not in line
        }
        timed.write_text(json.dumps({**found, "about": machine()}))
        sys.stderr.write(f"{folder.name} {found}\n")
    took = json.loads(timed.read_text())
    lines = [{"form": "manyhot"}, *json.loads(together.read_text())]
    return [{"set": name, "body": body, "about": took["about"], **line, **took.get(line["form"], {})} for line in lines]


def machine() -> str:
    """Where and when times were taken."""
    import onnxruntime
    import transformers

    return (
        f"{time.strftime('%Y-%m-%d')}, one core of {processor()} ({os.cpu_count()} cores), Python {platform.python_version()},"
        f" torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, transformers {transformers.__version__}"
    )


def _latency(run: Callable[[Any], Any], one: Examples, many: Examples) -> dict[str, float]:
    return {"one": milliseconds(lambda: run(one)), "many": milliseconds(lambda: run(many), 7)}


def page(lines: list[dict[str, Any]], command: str) -> str:
    """The result page."""
    head = "| set | body | form | rows | decisions | different | MB | load s | 1 row ms | 256 rows ms |"
    table = [head, "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for line in lines:
        counts = [f"{line[key]:,}" if key in line else "" for key in ("rows", "decisions", "different")]
        if "refused" in line:
            continue
        shown = [f"{line['size']:.2f}", f"{line['load']:.3f}", f"{line['one']:.2f}", f"{line['many']:.1f}"]
        table.append("| " + " | ".join([line["set"], line["body"], line["form"], *counts, *shown]) + " |")
    refused = sorted({f"`{line['body']}` is refused: {line['refused']}" for line in lines if "refused" in line})
    far = max((line["logits"] for line in lines if "logits" in line), default=0.0)
    probs = max((line["probabilities"] or 0 for line in lines if "probabilities" in line), default=0.0)
    where = [f"{each}. Times are medians." for each in sorted({line["about"] for line in lines})]
    return "\n".join(
        [
            "# Exported models beside the model",
            "",
            "Every row of each set (training and test), decided by the model, by onnxruntime on its exported graph and, for",
            "encoder and classifier, by a stock transformers pipeline cut at 0.5 on its exported folder. `different` counts",
            "decisions that are not the model's own. Each export was given the rows it is compared on here, and moved its",
            "thresholds out of the rounding of their scores.",
            f"Largest difference: logits {far:.1e} (relative to max(1, |logit|)), probabilities {probs:.1e}.",
            "",
            *table,
            "",
            *(ROUNDING if any(line.get("different") for line in lines) else ()),
            *(line for each in refused for line in (each, "")),
            "Times begin with texts or raw features and end with decisions; for onnxruntime the features are made by",
            "manyhot's own vectoriser. Sizes are whole folders. Loading is measured in a fresh process after the import of",
            "manyhot, onnxruntime or transformers; packages that loading itself imports count, which is most of the time of",
            "mlp, bag and encoder. The encoder is a BERT of two layers of width 64 with random start weights, trained for",
            "six epochs on at most 6,000 rows, the classifier a stock BertForSequenceClassification of that size, trained by a",
            "loop of its own for 200 steps; `wide` has three members of 64 hidden units. They show parity, not quality.",
            "",
            *where,
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
    parser.add_argument("--only", nargs="*", help="sets and bodies, like yeast-mlp")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.models.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for name, body in CELLS:
        folder = given.models / f"{name}-{body}"
        if not given.only or folder.name in given.only:
            lines += cell(given.data, folder, name, body)
    text = page(lines, "python -m benchmarks.export_parity --data DATA --models MODELS --page PAGE")
    if given.page:
        given.page.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
