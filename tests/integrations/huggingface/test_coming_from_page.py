"""The two blocks of docs/coming-from/huggingface.md, "Before" and "After", as they stand there."""

import re
from pathlib import Path
from textwrap import dedent

import pytest
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments

from integrations import tiny
from manyhot.integrations.huggingface import TrainerLoss

PAGE = Path(__file__).parents[3] / "docs" / "coming-from" / "huggingface.md"
BEFORE, AFTER = (
    dedent(code) for code in re.findall(r"^    ```python\n(.*?)^    ```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
)


@pytest.fixture
def script(tmp_path):
    """What a script has before the block, with integer labels."""
    tokenizer, texts = tiny.make_tokenizer(), tiny.make_texts(64)
    tiny.make_classifier().save_pretrained(tmp_path / "model")
    rows = [
        {**tokenizer(text), "labels": [int(name in own) for name in tiny.NAMES]}
        for text, own in zip(texts, tiny.label_sets(texts), strict=True)
    ]
    args = TrainingArguments(
        str(tmp_path / "out"), max_steps=2, use_cpu=True, report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    names = {"AutoModelForSequenceClassification": AutoModelForSequenceClassification, "Trainer": Trainer, "args": args}
    names |= {"name": str(tmp_path / "model"), "names": tiny.NAMES, "train": rows, "test": rows}
    return names | {"collator": DataCollatorWithPadding(tokenizer)}


def test_the_block_before_is_the_stock_trainer(script):
    exec(BEFORE, script)
    assert script["trainer"].compute_loss_func is None


def test_the_block_after_trains_with_zlpr_on_integer_labels(script):
    exec(AFTER, script)
    assert isinstance(script["trainer"].compute_loss_func, TrainerLoss)
    script["trainer"].train()
    assert script["trainer"].state.log_history[0]["loss"] > 1  # BCE starts at 0.69


def test_a_trainer_with_its_own_compute_loss_ignores_the_argument(script):
    class Weighted(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **_):
            inputs.pop("labels")
            outputs = model(**inputs)
            loss = 0.0 * outputs.logits.sum()
            return (loss, outputs) if return_outputs else loss

    script["Trainer"] = Weighted
    exec(AFTER, script)
    script["trainer"].train()
    assert script["trainer"].state.log_history[0]["loss"] == 0
