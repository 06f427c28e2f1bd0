"""The settings of a training run on spans; command-line flags are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from manyhot._checks import check_at_least, check_choice, check_unit
from manyhot.losses.catalog import LOSSES
from manyhot.training.run.schedule import SCHEDULES
from manyhot.training.run.settings import PRECISIONS, RunSettings, check_rate, check_whole, setting

SPAN_BODIES = ("auto", "words", "characters", "transformer", "pretrained")
SPAN_TOKENS = ("auto", "words", "characters")
SPAN_HEADS = ("efficient", "global-pointer")
SPAN_LOSSES = tuple(name for name, info in LOSSES.items() if info.spans)
SPAN_DECODES = ("auto", "nested", "flat", "all")


@dataclass(frozen=True)
class SpanSettings(RunSettings):
    """What a training run on spans does. Every field has a default; ``None`` and ``auto`` mean "chosen by the data".

    Example:
        >>> settings = SpanSettings(head="global-pointer", epochs=3)
        >>> SpanSettings.from_dict(settings.to_dict()) == settings
        True
    """

    body: str = setting(
        "auto", "encoder: words or characters (BiLSTM), transformer (small, from scratch) or pretrained; auto by the texts"
    )
    pretrained: str = setting("", "a Hugging Face encoder, name or folder; goes with the body pretrained")
    tokens: str = setting("auto", "words or characters; auto: characters for writing systems without blanks between words")
    head: str = setting("efficient", "efficient (types share the products) or global-pointer")
    rotary: bool = setting(True, "rotary position embeddings in the head")
    loss: str = setting("zlpr", f"the loss: {', '.join(SPAN_LOSSES)}; all but zlpr build the whole grid")
    rdrop: float = setting(0.0, "weight of R-Drop's divergence between two dropout passes, 0 for none")
    teacher: str = setting("", "a run or model folder whose probabilities are mixed into the labels (distillation)")
    teacher_share: float = setting(0.5, "share of the teacher in the labels, 0 to 1")
    epochs: int | None = setting(None, "passes over the data at most; default: 20, more for few texts, to make 1,000 steps")
    batch_size: int = setting(0, "texts or windows of a step; 0: 32, fewer where they are long")
    learning_rate: float | None = setting(None, "peak learning rate. Default: 2e-3 from scratch, 3e-5 pretrained")
    weight_decay: float = setting(0.01, "decoupled weight decay")
    warmup: float = setting(0.05, "share of all steps in which the learning rate rises")
    schedule: str = setting("linear", "learning-rate schedule after the warm-up: linear, cosine or constant")
    clip: float = setting(5.0, "largest norm of the gradient of a step, 0 for none")
    average: float = setting(0.998, "decay of the exponential moving average of the weights, 0 for none")
    patience: int = setting(
        10,
        "epochs of 20 without a better F1 on held-out texts before training stops, 0 for never; nothing found never stops it",
    )
    validation: float = setting(0.1, "share of the texts held out where no validation texts are given")
    hidden: int = setting(256, "width of each direction of the BiLSTM, half that of the transformer")
    layers: int | None = setting(None, "layers of the encoder. Default: 2 for a BiLSTM, 4 for a transformer")
    head_size: int = setting(64, "width of the head's products")
    dropout: float = setting(0.5, "share of units dropped in encoders trained from scratch")
    word_dropout: float = setting(
        0.5, "replace a word or bigram by the unknown one with probability a / (a + count) in training"
    )
    min_count: int = setting(
        2, "texts (or windows of a long text) a word, character or bigram must be in to have a vector of its own"
    )
    max_tokens: int = setting(256, "tokens of a window; longer texts are read in overlapping windows")
    overlap: int = setting(64, "tokens that neighbouring windows share")
    decode: str = setting(
        "auto", "which spans may overlap: nested, flat or all; auto: nested if the training spans are nested, else flat"
    )
    threshold: float = setting(0.0, "predict spans with a score above this, if it is not tuned")
    tune_threshold: bool = setting(True, "tune the threshold for F1 on the held-out texts")
    checkpoint_seconds: float = setting(30.0, "shortest time between two checkpoints within an epoch")
    tensorboard: bool = setting(False, "write the curves of the run for TensorBoard too, in a run folder")
    device: str = setting("auto", "auto, cpu, cuda or cuda:1")
    precision: str = setting("auto", "auto (bfloat16 on a GPU that supports it), float32 or bfloat16")
    threads: int = setting(0, "CPU threads; 0 is torch's own choice")
    seed: int = setting(0, "of everything that is drawn")

    def __post_init__(self) -> None:
        who = "SpanSettings"
        for name, choices in CHOICES.items():
            check_choice(who, name, getattr(self, name), choices)
        for name in ("warmup", "teacher_share", "validation", "dropout", "average"):
            check_unit(who, name, getattr(self, name), open_end=name not in ("warmup", "teacher_share"))
        for name in ("hidden", "head_size", "min_count", "max_tokens"):
            check_whole(who, name, getattr(self, name), 1)
        for name in ("batch_size", "patience", "threads", "seed", "overlap"):
            check_whole(who, name, getattr(self, name), 0)
        for name in ("layers", "epochs"):
            if getattr(self, name) is not None:
                check_whole(who, name, getattr(self, name), 1)
        for name in ("rdrop", "clip", "weight_decay", "word_dropout", "checkpoint_seconds"):
            check_at_least(who, name, getattr(self, name), 0)
        check_rate(who, self.learning_rate)
        if self.teacher_share != 0.5 and not self.teacher:
            raise ValueError(f"{who}: `teacher_share` must go with `teacher`; got none.")
        if self.overlap >= self.max_tokens:
            raise ValueError(f"{who}: `overlap` must be less than `max_tokens`, {self.max_tokens}; got {self.overlap}.")
        if bool(self.pretrained) != (self.body == "pretrained"):
            raise ValueError(
                f"{who}: `pretrained` names the encoder of the body 'pretrained', and only of it; got"
                f" {self.pretrained!r} and the body {self.body!r}."
            )


CHOICES: dict[str, tuple[str, ...]] = {
    "body": SPAN_BODIES,
    "tokens": SPAN_TOKENS,
    "head": SPAN_HEADS,
    "loss": SPAN_LOSSES,
    "schedule": SCHEDULES,
    "decode": SPAN_DECODES,
    "precision": PRECISIONS,
}
