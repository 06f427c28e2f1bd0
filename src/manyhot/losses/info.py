"""An entry of the loss catalog: everything the rest of the library needs to know about a loss."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from manyhot._checks import check_choice, is_number
from manyhot._suggest import nearest

HARD, SOFT, SPARSE = "hard", "soft", "sparse"
# Features of training that a loss may not support; `LossInfo.why_not` says why not.
FEATURES = (
    "where",
    "pos_weight",
    "neg_weight",
    "smoothing",
    "soft_labels",
    "mixup",
    "rdrop",
    "learned_threshold",
    "processes",
    "probabilities",
)
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_KIND_WORDS = {float: "a number", int: "a whole number", bool: "true or false"}


@dataclass(frozen=True)
class LossOption:
    """A setting that only one loss has, such as ``gamma`` of focal loss.

    Attributes:
        name: the keyword of the function.
        kind: ``float``, ``int`` or ``bool``.
        default: the default of the function.
        optional: whether None is allowed, written ``none``.
        summary: a one-line description.

    Example:
        >>> from manyhot import get_loss
        >>> gamma, alpha = get_loss("focal").options
        >>> gamma.default, alpha.parse("0.5"), alpha.parse("none")
        (2.0, 0.5, None)
    """

    name: str
    kind: type
    default: Any
    optional: bool
    summary: str

    @property
    def wanted(self) -> str:
        """The values it takes, in words."""
        return _KIND_WORDS[self.kind] + (" or none" if self.optional else "")

    def parse(self, text: str) -> Any:
        """The value written in ``text``; ValueError if there is none."""
        word = text.strip().lower()
        if self.optional and word == "none":
            return None
        if self.kind is bool and word in _YES + _NO:
            return word in _YES
        try:
            if self.kind is not bool:
                return self.kind(word)
        except ValueError:
            pass
        raise ValueError(f"the loss option `{self.name}` must be {self.wanted}; got {text!r}.")

    def check(self, value: Any) -> Any:
        """``value``, converted to float if an integer was given for one; ValueError if it has another type."""
        if value is None and self.optional:
            return None
        number = is_number(value)
        if self.kind is float and number:
            return float(value)
        if (self.kind is int and number and value == int(value)) or (self.kind is bool and isinstance(value, bool)):
            return self.kind(value)
        raise ValueError(f"the loss option `{self.name}` must be {self.wanted}; got {value!r}.")


@dataclass(frozen=True)
class LossInfo:
    """One loss of the catalog.

    Attributes:
        name: its name in settings and tables.
        title: its name in reports.
        family: the strategy it belongs to, such as ``"binary relevance"``.
        function: ``(logits, labels, *, ...) -> loss``.
        module: the ``nn.Module`` that calls the function.
        summary: a one-line description.
        decision: the natural decision: ``"zero"`` (s > 0), ``"threshold"`` (s > s0), ``"top-k"``, ``"argmax"`` or ``"tuned"``.
        link: the link that turns its scores into probabilities after training on hard labels: ``"hard"`` sigma(s),
            ``"softmax"``, or None where scores only rank.
        soft_link: the same after training on soft labels.
        options: the settings that only this loss has, as ``LossOption``.
        settings: keywords that distinguish it from other losses with the same function.
        label_kinds: the labels it takes: any of ``hard``, ``soft``, ``sparse``.
        lazy: whether it takes lazy scores.
        row_step: learning rate of plain gradient descent for a linear model, per row of norm 1. The gradient of ZLPR and BCE
            with respect to a score is below 1, and rates up to 5 help; that of a squared hinge is unbounded, and 0.4 diverges.
        constant_score: maps the share of rows with a label to its best constant score; None: the log odds.
        row_separable: whether the loss of a row depends on that row alone.
        one_label: whether it is for exactly one label per row.
        fused_rdrop: whether engines compute R-Drop with this loss in one pass.
        learned_threshold: whether it can be trained with a learned threshold.
        spans: whether span models train with it.
        refuses: features that it does not support, each with the reason.
        knob: an option and two values of it that a comparison tries, or None.
    """

    name: str
    title: str
    family: str
    function: Callable[..., Tensor]
    module: type[nn.Module]
    summary: str
    decision: str
    link: str | None
    soft_link: str | None
    options: tuple[LossOption, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    label_kinds: frozenset[str] = frozenset({HARD, SOFT, SPARSE})
    lazy: bool = False
    row_step: float = 5.0
    constant_score: Callable[[Tensor], Tensor] | None = None
    row_separable: bool = True
    one_label: bool = False
    fused_rdrop: bool = False
    learned_threshold: bool = False
    spans: bool = False
    refuses: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    knob: tuple[str, tuple[float, float]] | None = None

    def __call__(self, logits: Any, labels: Any, **settings: Any) -> Tensor:
        """Call the loss with its settings; a setting given here takes precedence."""
        return self.function(logits, labels, **{**self.settings, **settings})

    @property
    def rank_only(self) -> bool:
        """Whether its scores only rank, so that probabilities need a fitted calibration."""
        return self.link is None

    def takes(self, argument: str) -> bool:
        """Whether the function has the argument."""
        return argument in inspect.signature(self.function).parameters

    def why_not(self, feature: str) -> str | None:
        """The reason why the loss does not support a feature of ``FEATURES``; None if it does.

        Example:
            >>> from manyhot import get_loss
            >>> get_loss("zlpr").why_not("smoothing") is None
            True
            >>> get_loss("two_way").why_not("rdrop")
            'two_way compares the rows of a batch, so a single row has no loss'
        """
        check_choice("LossInfo.why_not", "feature", feature, FEATURES)
        if feature in self.refuses:
            return self.refuses[feature]
        if feature in ("where", "pos_weight", "neg_weight", "smoothing") and not self.takes(feature):
            return f"{self.name} has no `{feature}`"
        if feature in ("soft_labels", "mixup", "smoothing") and SOFT not in self.label_kinds:
            return f"{self.name} takes hard labels only"
        if feature in ("rdrop", "processes") and not self.row_separable:
            return f"{self.name} compares the rows of a batch, so a single row has no loss"
        if feature == "learned_threshold" and not self.learned_threshold:
            return f"{self.name} has no threshold; zlpr and tlpr have one"
        if feature == "probabilities" and self.rank_only:
            return f"the scores of {self.name} only rank; fit a calibration on held-out rows"
        return None

    def parse_options(self, texts: Iterable[str]) -> dict[str, Any]:
        """``["gamma=2", "alpha=none"]`` as keywords of the function.

        Example:
            >>> from manyhot import get_loss
            >>> get_loss("focal").parse_options(["gamma=1", "alpha=none"])
            {'gamma': 1.0, 'alpha': None}
        """
        found: dict[str, Any] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals:
                raise ValueError(f"a loss option must be written name=value, as in gamma=2; got {text!r}.")
            found[name.strip()] = self._option(name.strip()).parse(value)
        return found

    def check_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """``options`` with every name and type checked; ValueError otherwise."""
        return {name: self._option(name).check(value) for name, value in options.items()}

    def _option(self, name: str) -> LossOption:
        known = {option.name: option for option in self.options}
        if name not in known:
            has = f"has the options {', '.join(known)}" if known else "has no options"
            raise ValueError(f"unknown loss option {name!r}: {self.name} {has}.{nearest(name, known)}")
        return known[name]


def options_of(function: Callable[..., Any], **summaries: str) -> tuple[LossOption, ...]:
    """Options of a loss function by name; type and default come from its signature."""
    parameters, hints = inspect.signature(function).parameters, typing.get_type_hints(function)
    found = []
    for name, summary in summaries.items():
        hint, optional = hints[name], False
        if isinstance(hint, types.UnionType):
            kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
            hint, optional = kinds[0], len(kinds) < len(typing.get_args(hint))
        found.append(LossOption(name, hint, parameters[name].default, optional, summary))
    return tuple(found)
