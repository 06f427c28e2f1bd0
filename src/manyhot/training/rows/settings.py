"""The settings of a training run: frozen, typed, with one line of help each; command-line flags are made from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from manyhot._checks import check_at_least, check_choice, check_unit
from manyhot.decisions.calibrate import KINDS
from manyhot.losses.catalog import LOSSES, get_loss
from manyhot.training.rows.bodies.info import AUTO_BODY
from manyhot.training.rows.bodies.registry import BODIES, trained_bodies
from manyhot.training.rows.steering import AUTO, NONE, TUNINGS, steering_of, stopped_by
from manyhot.training.rows.strategies import PLAIN, STRATEGIES, get_strategy
from manyhot.training.run.schedule import SCHEDULES
from manyhot.training.run.settings import (
    LARGEST_WEIGHT,
    PRECISIONS,
    RunSettings,
    check_whole,
    seconds_of,
    setting,
)

ENCODER, DEFAULT_LOSS = "encoder", "zlpr"
# Settings that have no effect with a loss without a threshold.
THRESHOLD_ONLY = {
    *("tune", "per_label", "calibrate", "pos_weight", "learn_threshold", "row_threshold", "smoothing", "flip"),
    *("loss_option", "propensity_weights"),
}


@dataclass(frozen=True)
class TrainSettings(RunSettings):
    """What a training run does. Every field has a default; ``None`` means "chosen by the data".

    Example:
        >>> settings = TrainSettings(loss="bce", epochs=3)
        >>> TrainSettings.from_dict(settings.to_dict()) == settings
        True
        >>> TrainSettings.from_dict({"epoch": 3})
        Traceback (most recent call last):
            ...
        ValueError: TrainSettings: unknown setting 'epoch'. Did you mean 'epochs'?
    """

    may_change = ("label_shards",)
    model: str = setting(
        AUTO_BODY,
        "body: auto (depends on the data), "
        + ", ".join(f"{name} ({', '.join(BODIES[name].reads)})" for name in trained_bodies()),
    )
    encoder: str = setting("", "a Hugging Face encoder to fine-tune, by name or folder (text)")
    max_tokens: int = setting(256, "longest text in tokens; longer texts are truncated (encoder)")
    strategy: str = setting(
        PLAIN,
        "how labels become targets: " + ", ".join(" or ".join((each.name, *each.aliases[:1])) for each in STRATEGIES.values()),
    )
    loss: str = setting(
        AUTO, "loss; manyhot losses lists them. auto: squared_hinge for text (linear), or that of strategy or body, else zlpr"
    )
    loss_option: tuple[str, ...] = setting((), "option of the loss as name=value, such as gamma=2; may be repeated")
    pos_weight: float | str | None = setting(
        None,
        "weight of the positives inside the loss, or auto (learn the threshold while training; zlpr only). Default: auto"
        " with --tune none, the number of labels (at most 100) for text with hard labels, otherwise 1",
    )
    propensity_weights: bool = setting(
        False, "weight positives by the inverse propensity of their label, as PSP@k does, scaled to mean 1"
    )
    smoothing: float = setting(0.0, "label smoothing e, 0 to 1: train on t (1 - e) + e / 2")
    flip: float = setting(0.0, "label flipping, 0 to 1: sample hard labels in every step, with the smoothed label as mean")
    mixup: float = setting(0.0, "alpha of mixup, 0 for none (not with an encoder)")
    rdrop: float = setting(0.0, "weight of R-Drop's divergence between two dropout passes, 0 for none")
    learn_threshold: bool = setting(False, "learn one decision threshold with the model (zlpr; tlpr always does)")
    row_threshold: bool = setting(False, "learn a decision threshold per row, as one more output of the model (zlpr, tlpr)")
    teacher: str = setting("", "run or model folder whose probabilities are mixed into the labels (distillation)")
    teacher_share: float = setting(0.5, "weight of the teacher's probabilities in the labels, 0 to 1")
    epochs: int | None = setting(
        None,
        "most epochs. Default: by the number of rows, 3 to 10 for linear on sparse inputs, 5 to 20 for bag, 6 for tree,"
        " otherwise 10 to 40",
    )
    batch_size: int = setting(0, "rows per step. Default: 128, 4096 for wide")
    learning_rate: float | None = setting(
        None,
        "peak learning rate. Default: chosen by the body; by a learning-rate range test for mlp on dense features and conv",
    )
    weight_decay: float = setting(0.01, "decoupled weight decay (not for linear on sparse inputs)")
    warmup: float = setting(0.05, "share of the steps in which the learning rate rises (not for linear on sparse inputs)")
    schedule: str = setting("linear", "learning-rate schedule after the warm-up: linear, cosine or constant")
    clip: float = setting(1.0, "clip the gradient to this norm, 0 for none (not for sparse gradients)")
    patience: int = setting(6, "early stopping: epochs without improvement, 0 to never stop early (mlp, conv, encoder)")
    metric: str = setting(
        AUTO,
        "metric to train for; manyhot metrics lists them. It selects early stopping, the decision rule, the loss and the"
        " calibration. auto: stop by micro-F1, tune the rule for micro-F1 and macro-F1 together",
    )
    budget: str = setting(
        "",
        "time to try several losses, learning rates and features, such as 60s or 5m; the best on held-out rows is kept."
        " Default: train one model",
    )
    validation: float = setting(
        0.1, "share of the rows held out if there is no --validation-file (mlp, bag, conv; tree: at most 5,000 rows)"
    )
    members: int | None = setting(
        None,
        "number of fits whose mean is the model, each with another part of the rows held out (mlp, bag, wide, linear on dense"
        " features). Default: 2 for bag, 3 for wide, 5 for the others on at most 20,000 rows, otherwise 1",
    )
    mean_of: str = setting(
        AUTO,
        "losses to average, separated by commas, such as zlpr,bce,powerset; none: one loss (mlp and linear on tables)."
        " auto: by --metric on at most 20,000 rows (linear on sparse features: on any number), otherwise none",
    )
    folds: int | None = setting(
        None, "cross-fitting folds to tune the rule on (linear on sparse inputs). Default: 5 for 1,000 texts or more, else 3"
    )
    checkpoint_seconds: float = setting(30.0, "shortest time between two checkpoints within an epoch")
    tune: str = setting(
        AUTO,
        "metric to tune the decision rule for; balanced (micro-F1 and macro-F1), sets (whole label sets, for SubACC) or none."
        " auto: by --metric; none for the loss softmax and for label powerset",
    )
    per_label: bool = setting(True, "tune one threshold per label, shrunk towards the common one; otherwise one for all labels")
    shrink: float = setting(5.0, "how strongly thresholds per label are shrunk towards the common one, in pseudo-positives")
    min_labels: int = setting(0, "predict at least this many labels per row, the best ones")
    calibrate: str = setting(
        AUTO,
        f"calibrate probabilities on held-out scores: none, {', '.join(KINDS)}. auto: platt for a metric of probabilities,"
        " otherwise none",
    )
    hidden: int = setting(0, "width of the hidden layer of each member (mlp, conv, bag, wide). Default: 256, 1024 for wide")
    dropout: float | None = setting(None, "dropout probability. Default: 0.3, 0 for bag, 0.5 for wide")
    ngrams: int | None = setting(
        None, "longest word n-gram (text). Default: 2 for tree and wide on over 100,000 texts, for tree on long ones, else 1"
    )
    word_starts: bool | None = setting(
        None,
        "also use the first 4 and 5 letters of words as features (text). Default: yes if texts average fewer than 200 words",
    )
    char_ngrams: int = setting(0, "longest character n-gram, 0 for none (text)")
    trees: int | None = setting(None, "averaged label trees (tree). Default: 6 for up to 100,000 rows, else 3; 1 with n-grams")
    beam: int = setting(10, "width of the beam search in a label tree, in training and prediction (tree)")
    max_features: int = setting(500_000, "most n-grams in the vocabulary, the most frequent ones and all ties (text)")
    min_count: int = setting(2, "drop n-grams that occur in fewer rows (text)")
    label_shards: int = setting(
        0, "shard the labels over this many processes, all that torchrun starts; 0 for none (implies --model wide)"
    )
    device: str = setting("auto", "device: auto, cpu, cuda or cuda:1")
    precision: str = setting("auto", "precision: auto (bfloat16 on a GPU that supports it), float32 or bfloat16")
    threads: int = setting(0, "CPU threads. Default: 1 for small linear models, otherwise as torch has them")
    seed: int = setting(0, "random seed of the run")
    tensorboard: bool = setting(False, "write event files for TensorBoard into the run folder")

    def __post_init__(self) -> None:
        who, strategy = "TrainSettings", get_strategy(self.strategy)
        self.check_shared(who)
        steering_of(self.metric)
        for name, value in (
            ("strategy", strategy.name),
            ("loss", strategy.loss if strategy.loss and self.loss == AUTO else self.loss),
            ("loss_option", option_texts(self.loss_option)),
        ):
            object.__setattr__(self, name, value)
        for name, choices in (
            ("model", (AUTO_BODY, *trained_bodies())),
            ("loss", (AUTO, *LOSSES)),
            ("schedule", SCHEDULES),
            ("tune", TUNINGS),
            ("calibrate", (AUTO, "none", *KINDS)),
            ("precision", PRECISIONS),
        ):
            check_choice(who, name, getattr(self, name), choices)
        for name in ("smoothing", "flip", "teacher_share", "warmup", "validation"):
            check_unit(who, name, getattr(self, name), open_end=name == "validation")
        if self.dropout is not None:
            check_unit(who, "dropout", self.dropout, open_end=True)
        for name, least in (("epochs", 1), ("members", 1), ("folds", 2), ("trees", 1), ("ngrams", 1)):
            if getattr(self, name) is not None:
                check_whole(who, name, getattr(self, name), least)
        for name in ("beam", "min_count", "max_features", "max_tokens"):
            check_whole(who, name, getattr(self, name), 1)
        for name in ("hidden", "patience", "char_ngrams", "min_labels", "label_shards"):
            check_whole(who, name, getattr(self, name), 0)
        check_at_least(who, "mixup", self.mixup, 0, most=LARGEST_WEIGHT)
        check_at_least(who, "shrink", self.shrink, 0)
        if self.budget:
            seconds_of(who, "budget", self.budget)
        for check in (self._check_loss, self._check_mean_of, self._check_pos_weight):
            check(who)
        if self.encoder and self.model not in (AUTO_BODY, ENCODER):
            raise ValueError(f"{who}: `encoder` must go with the model encoder; got {self.model!r}.")
        if self.model == ENCODER and not self.encoder:
            raise ValueError(f"{who}: `encoder` must name an encoder or its folder with the model encoder; got none.")

    @property
    def usual_loss(self) -> str:
        """The loss; if it is auto, the default loss of the body. The metric may still choose another one.

        A default loss without a threshold is used only if no setting needs a threshold.
        """
        if self.loss != AUTO or self.model not in BODIES:
            return DEFAULT_LOSS if self.loss == AUTO else self.loss
        body = BODIES[self.model]
        first = body.losses[0] if body.losses else DEFAULT_LOSS
        changed = {each.name for each in fields(self) if getattr(self, each.name) != each.default}
        return first if changed & THRESHOLD_ONLY else body.usual_loss or first

    @property
    def learns_threshold(self) -> bool:
        """Whether one threshold is learned for all rows."""
        return (self.learn_threshold or self.loss == "tlpr") and not self.row_threshold

    @property
    def stop_metric(self) -> str:
        """The metric on held-out rows for early stopping."""
        return stopped_by(self.metric)

    @property
    def softens(self) -> bool:
        """Whether hard labels are changed in training: smoothed, flipped, mixed, or mixed with those of a teacher."""
        return bool(self.smoothing or self.flip or self.mixup or self.teacher)

    def _check_loss(self, who: str) -> None:
        info, strategy = get_loss(self.usual_loss), get_strategy(self.strategy)
        if strategy.families and info.family not in strategy.families:
            fitting = [name for name, other in LOSSES.items() if other.family in strategy.families]
            raise ValueError(
                f"{who}: `loss` must be {', '.join(fitting)} or auto for the strategy {self.strategy}; got {self.loss!r}."
            )
        try:
            info.parse_options(self.loss_option)
        except ValueError as error:
            raise ValueError(f"{who}: `loss_option` must suit the loss {self.loss}: {error}") from None
        for name in ("learn_threshold", "row_threshold"):
            why = info.why_not("learned_threshold") if getattr(self, name) else None
            if why is not None:
                raise ValueError(f"{who}: `{name}` must be left out: {why}.")
        if self.row_threshold and self.learn_threshold:
            raise ValueError(
                f"{who}: `learn_threshold` and `row_threshold` must not be combined: one threshold, or one per row."
            )
        if self.teacher_share != 0.5 and not self.teacher:
            raise ValueError(f"{who}: `teacher_share` must go with `teacher`; got none.")

    def _check_mean_of(self, who: str) -> None:
        names = self.mean_of.split(",")
        if self.mean_of in (AUTO, NONE):
            return
        for name in names:
            check_choice(who, "mean_of", name, (*LOSSES, "powerset"))
        if len(set(names)) != len(names) or len(names) < 2 or not set(names) - {"powerset"}:
            raise ValueError(
                f"{who}: `mean_of` must be two or more different losses, with commas, or none; got {self.mean_of!r}."
            )

    def _check_pos_weight(self, who: str) -> None:
        if self.pos_weight == AUTO:
            if self.usual_loss != "zlpr" or self.learn_threshold or self.row_threshold:
                raise ValueError(f"{who}: `pos_weight` auto must go with the loss zlpr and no learned threshold.")
        elif isinstance(self.pos_weight, str):
            raise ValueError(f"{who}: `pos_weight` must be a number > 0 or 'auto'; got {self.pos_weight!r}.")
        elif self.pos_weight is not None:
            check_at_least(who, "pos_weight", self.pos_weight, 0, strict=True, most=LARGEST_WEIGHT)

    def to_dict(self) -> dict[str, Any]:
        """All settings, for JSON or TOML."""
        return {**super().to_dict(), "loss_option": list(self.loss_option)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From some or all settings; an unknown name is an error that names the nearest one."""
        return super().from_dict({**data, **_as_number("pos_weight", data)})


def option_texts(given: Mapping[str, Any] | Iterable[str]) -> tuple[str, ...]:
    """Options of a loss as ``name=value``, in the order of their names; the last value of a name wins.

    Example:
        >>> option_texts({"gamma": 2, "alpha": None})
        ('alpha=none', 'gamma=2')
        >>> option_texts(["gamma=1", "gamma=2"])
        ('gamma=2',)
    """
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Mapping):
        given = [f"{name}={'none' if value is None else value}" for name, value in given.items()]
    return tuple(sorted({text.partition("=")[0].strip(): text for text in given}.values()))


def _as_number(name: str, data: Mapping[str, Any]) -> dict[str, float]:
    """The number in a text; a command-line flag that also takes words passes numbers as text."""
    try:
        return {name: float(data[name])} if isinstance(data.get(name), str) else {}
    except ValueError:
        return {}
