"""A small real run of each framework on goemotions: the same model and budget with the framework's usual loss and with ZLPR.

MANYHOT_DATA=... python -m benchmarks.integrations_runs > benchmarks/results/integrations-runs-DATE.md

Models are small and start from random weights, so that nothing is downloaded: read the figures of one framework against each
other, not against published ones.
"""

import argparse
import os
import platform
import tempfile
import time
import warnings
from collections import Counter
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from benchmarks.text_sets import goemotions
from manyhot import DecisionRule, Metrics, tune_rule

WORDS = 4000
NAMES = ["micro-F1", "macro-F1"]
DEV = 0.25  # share of the training rows that thresholds are tuned on


class Rows:
    """Texts, tf-idf features and labels: to train on, to tune on, to test."""

    def __init__(self, train, test):
        from sklearn.feature_extraction.text import TfidfVectorizer

        examples, unseen = goemotions(Path(os.environ["MANYHOT_DATA"]))
        examples, unseen = examples[: int(train / (1 - DEV))], unseen[:test]
        self.label_names = examples.label_names
        self.texts = [examples.texts[:train], examples.texts[train:], unseen.texts]
        labels = examples.labels.dense()
        self.labels = [labels[:train].float(), labels[train:].float(), unseen.labels.dense().float()]
        words = TfidfVectorizer(max_features=WORDS, sublinear_tf=True).fit(self.texts[0])
        self.features = [words.transform(part).toarray().astype("f") for part in self.texts]

    @property
    def num_labels(self):
        return len(self.label_names)


def measured(scores, labels, rule=None):
    metrics = Metrics(NAMES, num_labels=labels.shape[1], rule=rule)
    metrics.update(torch.as_tensor(np.asarray(scores)).float(), labels.bool())
    return [float(value) for value in metrics.compute().values()]


def both_ways(rows, scores_of):
    """Test figures at the cut of 0 and with thresholds tuned for macro-F1; ``scores_of(part)`` gives logits."""
    dev, test = (torch.as_tensor(np.asarray(scores_of(part))).float() for part in (1, 2))
    rule = tune_rule(dev, rows.labels[1].bool(), objective="macro-F1", per_label=True).recommended
    return {"0": measured(test, rows.labels[2], DecisionRule()), "tuned": measured(test, rows.labels[2], rule)}


def run_keras(rows):
    """One hidden layer on tf-idf features."""
    import keras

    from manyhot.integrations.keras import ZLPRLoss

    for name, loss in (("BinaryCrossentropy", keras.losses.BinaryCrossentropy(from_logits=True)), ("ZLPRLoss", ZLPRLoss())):
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Dense(128, activation="relu"), keras.layers.Dropout(0.3), keras.layers.Dense(rows.num_labels)]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.Adam(2e-3), loss=loss)
        start = time.perf_counter()
        model.fit(rows.features[0], rows.labels[0].numpy(), batch_size=128, epochs=8, verbose=0)
        seconds = time.perf_counter() - start
        yield name, both_ways(rows, lambda part, model=model: model.predict(rows.features[part], verbose=0)), seconds


def run_lightning(rows):
    """One hidden layer on tf-idf features, the rule tuned by ``RuleTuning`` on the validation rows."""
    import lightning
    from torch.utils.data import DataLoader, TensorDataset

    from manyhot import bce_loss, zlpr_loss
    from manyhot.integrations.lightning import RuleTuning

    class Network(lightning.LightningModule):
        def __init__(self, loss):
            super().__init__()
            self.loss = loss
            widths = (rows.features[0].shape[1], 128, rows.num_labels)
            layers = [torch.nn.Linear(*widths[:2]), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(*widths[1:])]
            self.net = torch.nn.Sequential(*layers)

        def training_step(self, batch):
            return self.loss(self.net(batch[0]), batch[1])

        def validation_step(self, batch):
            return {"logits": self.net(batch[0]), "labels": batch[1]}

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=2e-3)

    sets = [TensorDataset(torch.tensor(x), t) for x, t in zip(rows.features, rows.labels, strict=True)]
    for name, loss in (("bce_loss", bce_loss), ("zlpr_loss", zlpr_loss)):
        lightning.seed_everything(0, verbose=False)
        tuning = RuleTuning("macro-F1", per_label=True, file=None)
        trainer = lightning.Trainer(
            max_epochs=8,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[tuning],
        )
        module, start = Network(loss), time.perf_counter()
        trainer.fit(module, DataLoader(sets[0], batch_size=128, shuffle=True), DataLoader(sets[1], batch_size=512))
        seconds = time.perf_counter() - start
        with torch.no_grad():
            scores = module.eval().net(torch.tensor(rows.features[2]))
        found = {"0": measured(scores, rows.labels[2]), "tuned": measured(scores, rows.labels[2], tuning.rule)}
        yield name, found, seconds


def make_encoder(rows, folder, num_labels=None):
    """A small BERT with random weights over the words of the training rows, saved with its tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    split = pre_tokenizers.Whitespace()
    counts = Counter(word for text in rows.texts[0] for word, _ in split.pre_tokenize_str(text.lower()))
    words = (*special, *(word for word, _ in counts.most_common(WORDS)))
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), split
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=32, model_input_names=["input_ids", "attention_mask"], **names
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=32, **sizes)
    if num_labels is not None:
        config.num_labels = num_labels
    model = BertModel(config) if num_labels is None else BertForSequenceClassification(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def run_cross_encoder(rows):
    """A small BERT with random weights, fine-tuned by ``CrossEncoderTrainer``."""
    from datasets import Dataset
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments

    from manyhot.integrations.sentence_transformers import MultiLabelLoss
    from manyhot.integrations.sentence_transformers import scores_of as scores_of_texts

    data = Dataset.from_dict({"text": list(rows.texts[0]), "label": rows.labels[0].tolist()})
    for name in ("bce", "zlpr"):
        with tempfile.TemporaryDirectory() as folder:
            make_encoder(rows, folder, rows.num_labels)
            model = CrossEncoder(folder, num_labels=rows.num_labels, device="cpu")
            args = CrossEncoderTrainingArguments(
                output_dir=folder + "/out",
                num_train_epochs=6,
                learning_rate=2e-3,
                per_device_train_batch_size=64,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                use_cpu=True,
                disable_tqdm=True,
                dataloader_pin_memory=False,
                seed=0,
            )
            trainer = CrossEncoderTrainer(model, args, train_dataset=data, loss=MultiLabelLoss(model, name))
            start = time.perf_counter()
            trainer.train()
            seconds = time.perf_counter() - start

        def scores_of(part, model=model):
            model.eval()
            texts = list(rows.texts[part])
            with torch.inference_mode():
                return torch.cat([scores_of_texts(model, texts[n : n + 256], None, None) for n in range(0, len(texts), 256)])

        yield f'MultiLabelLoss(model, "{name}")', both_ways(rows, scores_of), seconds


def run_setfit(rows):
    """Sentence embeddings of a small encoder with random weights; the heads are fitted to the same embeddings."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from setfit import SetFitModel
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    from manyhot import ManyhotClassifier

    with tempfile.TemporaryDirectory() as folder:
        make_encoder(rows, folder)
        words = Transformer(folder)
        body = SentenceTransformer(modules=[words, Pooling(64)], device="cpu")
    heads = {
        "one-vs-rest logistic regression": OneVsRestClassifier(LogisticRegression(max_iter=300)),
        "ManyhotClassifier": ManyhotClassifier(epochs=15),
    }
    for name, head in heads.items():
        model = SetFitModel(model_body=body, model_head=head, multi_target_strategy=None)
        start = time.perf_counter()
        head.fit(np.asarray(model.encode(list(rows.texts[0]))), rows.labels[0].numpy().astype(int))
        seconds = time.perf_counter() - start
        own = np.asarray(model.predict(list(rows.texts[2])))
        figures = measured(torch.as_tensor(own).float() * 2 - 1, rows.labels[2])
        decisions = [head.decision_function(np.asarray(model.encode(list(rows.texts[part])))) for part in (1, 2)]
        rule = tune_rule(
            torch.as_tensor(decisions[0]).float(), rows.labels[1].bool(), objective="macro-F1", per_label=True
        ).recommended
        yield name, {"0": figures, "tuned": measured(decisions[1], rows.labels[2], rule)}, seconds


RUNS = {"Keras": run_keras, "Lightning": run_lightning, "CrossEncoder": run_cross_encoder, "SetFit": run_setfit}
PACKAGES = {"Keras": "keras", "Lightning": "lightning", "CrossEncoder": "sentence-transformers", "SetFit": "setfit"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=6000, help="rows to train on")
    parser.add_argument("--test", type=int, default=2000, help="rows to test")
    parser.add_argument("--only", choices=RUNS, action="append")
    given = parser.parse_args()
    os.environ.setdefault("KERAS_BACKEND", "torch")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = Rows(given.train, given.test)
    chosen = given.only or list(RUNS)
    print("# Small real runs: Keras, Lightning, CrossEncoder and SetFit on goemotions\n")
    sizes, count = [f"{len(part):,}" for part in rows.labels], rows.num_labels
    print(f"{sizes[0]} rows to train on, {sizes[1]} to tune thresholds on, the first {sizes[2]} test rows, {count} labels;")
    print(
        f"one seed, one CPU thread ({platform.machine()}), torch {torch.__version__}, {date.today()}. Small models from random"
    )
    print("weights: read the figures of one framework against each other. The spread over seeds was not measured.")
    print(f"Command: `python -m benchmarks.integrations_runs --train {given.train} --test {given.test}`.\n")
    for framework in chosen:
        run = RUNS[framework]
        print(f"## {framework} {version(PACKAGES[framework])}\n\n{run.__doc__.replace('``', '`')}\n")
        print("| what | micro-F1 | macro-F1 | tuned: micro-F1 | tuned: macro-F1 | training, s |\n|---|---|---|---|---|---|")
        for name, found, seconds in run(rows):
            figures = " | ".join(f"{value:.3f}" for value in (*found["0"], *found["tuned"]))
            print(f"| `{name}` | {figures} | {seconds:.0f} |", flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
