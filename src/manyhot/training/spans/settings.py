"""The settings of a training run on spans; command-line flags are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from manyhot._checks import check_at_least, check_choice, check_unit
from manyhot.losses.catalog import LOSSES
from manyhot.training.run.schedule import SCHEDULES
from manyhot.training.run.settings import (
    PRECISIONS,
    RunSettings,
    check_whole,
    setting,
)

SPAN_BODIES = ("auto", "words", "characters", "transformer", "pretrained")
SPAN_TOKENS = ("auto", "words", "characters")
SPAN_HEADS = ("efficient", "global-pointer")
SPAN_LOSSES = tuple(name for name, info in LOSSES.items() if info.spans)
MOST_AFFIXES = 10
SPAN_DECODES = ("auto", "nested", "flat", "all")


@dataclass(frozen=True)
class SpanSettings(RunSettings):
    """The settings of a training run on spans. Every field has a default; ``None`` and ``auto`` mean "depends on the data".

    Example:
        >>> settings = SpanSettings(head="global-pointer", epochs=3)
        >>> SpanSettings.from_dict(settings.to_dict()) == settings
        True
    """

    body: str = setting(
        "auto",
        "encoder: words or characters (BiLSTM), transformer (small, from scratch) or pretrained. auto: depends on the texts",
    )
    pretrained: str = setting("", "Hugging Face encoder, by name or folder; implies --body pretrained")
    tokens: str = setting(
        "auto", "tokens: words or characters. auto: characters for writing systems without spaces between words"
    )
    head: str = setting("efficient", "head: efficient (types share the products) or global-pointer")
    rotary: bool = setting(True, "rotary position embeddings in the head")
    loss: str = setting("zlpr", f"loss: {', '.join(SPAN_LOSSES)}; all but zlpr build the whole grid")
    rdrop: float = setting(0.0, "weight of R-Drop's divergence between two dropout passes, 0 for none")
    teacher: str = setting("", "run or model folder whose probabilities are mixed into the labels (distillation)")
    teacher_share: float = setting(0.5, "weight of the teacher's probabilities in the labels, 0 to 1")
    epochs: int | None = setting(None, "most epochs. Default: 20, or more to make 1,000 steps (at most 200)")
    batch_size: int = setting(0, "texts or windows per step. Default: 32, or fewer if they are long")
    learning_rate: float | None = setting(None, "peak learning rate. Default: 2e-3 from scratch, 3e-5 pretrained")
    weight_decay: float = setting(0.01, "decoupled weight decay")
    warmup: float = setting(0.05, "share of all steps in which the learning rate rises")
    schedule: str = setting("linear", "learning-rate schedule after the warm-up: linear, cosine or constant")
    clip: float = setting(5.0, "clip the gradient to this norm, 0 for none")
    average: float = setting(0.998, "decay of the exponential moving average of the weights, 0 for none")
    patience: int = setting(
        10,
        "early stopping: epochs (of 20) without a better F1 on held-out texts, 0 to never stop early",
    )
    validation: float = setting(0.1, "share of the texts held out if there is no --validation-file")
    hidden: int = setting(256, "width of each direction of the BiLSTM, half that of the transformer")
    layers: int | None = setting(None, "layers of the encoder. Default: 2 for a BiLSTM, 4 for a transformer")
    skip: bool | None = setting(
        None, "the head of a BiLSTM also reads the vectors of the tokens. Default: yes with fewer than 10,000 marked spans"
    )
    head_size: int = setting(64, "width of the head's products")
    dropout: float = setting(0.5, "dropout probability in encoders trained from scratch")
    word_dropout: float = setting(
        0.5, "replace a word or bigram by the unknown one with probability a / (a + count) in training"
    )
    affixes: int = setting(
        3, "features of a word: its prefixes and suffixes of up to this many letters and its pattern of capitals, 0 for none"
    )
    min_count: int = setting(2, "drop words, characters and bigrams that occur in fewer texts (or windows of a long text)")
    max_tokens: int = setting(256, "tokens per window; longer texts are read in overlapping windows")
    overlap: int = setting(64, "tokens that neighbouring windows share")
    decode: str = setting(
        "auto", "which spans may overlap: nested, flat or all. auto: nested if the training spans are nested, otherwise flat"
    )
    threshold: float = setting(0.0, "threshold of the scores, if it is not tuned")
    tune_threshold: bool = setting(True, "tune the threshold for F1 on the held-out texts")
    checkpoint_seconds: float = setting(30.0, "shortest time between two checkpoints within an epoch")
    tensorboard: bool = setting(False, "write event files for TensorBoard into the run folder")
    device: str = setting("auto", "device: auto, cpu, cuda or cuda:1")
    precision: str = setting("auto", "precision: auto (bfloat16 on a GPU that supports it), float32 or bfloat16")
    threads: int = setting(0, "CPU threads. Default: as torch has them")
    seed: int = setting(0, "random seed of the run")

    def __post_init__(self) -> None:
        who = "SpanSettings"
        if self.pretrained and self.body == "auto":
            object.__setattr__(self, "body", "pretrained")
        self.check_shared(who)
        for name, choices in CHOICES.items():
            check_choice(who, name, getattr(self, name), choices)
        for name in ("warmup", "teacher_share", "validation", "dropout", "average"):
            check_unit(who, name, getattr(self, name), open_end=name not in ("warmup", "teacher_share"))
        for name in ("hidden", "head_size", "min_count", "max_tokens"):
            check_whole(who, name, getattr(self, name), 1)
        for name in ("patience", "overlap"):
            check_whole(who, name, getattr(self, name), 0)
        for name in ("layers", "epochs"):
            if getattr(self, name) is not None:
                check_whole(who, name, getattr(self, name), 1)
        check_at_least(who, "word_dropout", self.word_dropout, 0)
        check_whole(who, "affixes", self.affixes, 0, MOST_AFFIXES)
        if self.teacher_share != 0.5 and not self.teacher:
            raise ValueError(f"{who}: `teacher_share` must go with `teacher`; got none.")
        if self.overlap >= self.max_tokens:
            raise ValueError(f"{who}: `overlap` must be less than `max_tokens`, {self.max_tokens}; got {self.overlap}.")
        if bool(self.pretrained) != (self.body == "pretrained"):
            raise ValueError(
                f"{who}: `pretrained` must name an encoder with the body 'pretrained', and only with it; got"
                f" {self.pretrained!r} and the body {self.body!r}."
            )


# The values of later settings that models saved before them were trained with.
BEFORE: dict[str, int | bool] = {"affixes": 0, "skip": False}

CHOICES: dict[str, tuple[str, ...]] = {
    "body": SPAN_BODIES,
    "tokens": SPAN_TOKENS,
    "head": SPAN_HEADS,
    "loss": SPAN_LOSSES,
    "schedule": SCHEDULES,
    "decode": SPAN_DECODES,
    "precision": PRECISIONS,
}
