"""spaCy: text and span categorisers trained by ZLPR, as the factories ``manyhot_textcat`` and ``manyhot_spancat``.

Both use the stock multi-label architectures. The logistic output layer is removed, so the model returns scores (logits). The
loss and its gradient are computed in the array library that spaCy uses (NumPy or CuPy). ``doc.cats`` holds ``sigma(s - t)``
with the component's thresholds ``t``, so the decision is a threshold of 0.5, as everywhere in spaCy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from manyhot.decisions import TunedRule, tune_rule
from manyhot.integrations.registry import framework

spacy: Any = framework("spacy")

from spacy.pipeline.spancat import DEFAULT_SPANCAT_MODEL, DEFAULT_SPANS_KEY, SpanCategorizer  # noqa: E402
from spacy.pipeline.textcat_multilabel import DEFAULT_MULTI_TEXTCAT_MODEL, MultiLabel_TextCategorizer  # noqa: E402
from thinc.api import noop  # noqa: E402

# The score of a text without tokens: no label is predicted.
LOWEST = -30.0
Array = Any


def zlpr_rows(xp: Any, scores: Array, labels: Array, where: Array) -> tuple[Array, Array]:
    """ZLPR of each row and its gradient, in closed form.

    Args:
        xp: NumPy or CuPy.
        scores: float ``[B, L]``.
        labels: float ``[B, L]`` in [0, 1].
        where: bool ``[B, L]``; False leaves an entry out, with gradient 0.

    Returns:
        ``(values [B], gradient [B, L])``.

    Example:
        >>> import numpy as np
        >>> every = np.ones((1, 3), dtype=bool)
        >>> values, gradient = zlpr_rows(np, np.array([[4.0, -3.0, 2.0]]), np.array([[1.0, 0.0, 1.0]]), every)
        >>> values.round(4).tolist(), gradient.round(4).tolist()
        ([0.1915], [[-0.0159, 0.0474, -0.1173]])
    """
    values, gradient = 0.0, xp.zeros_like(scores)
    for sign, weight in ((-1.0, xp.where(where, labels, 0.0)), (1.0, xp.where(where, 1 - labels, 0.0))):
        z = xp.where(weight > 0, sign * scores, -xp.inf)
        top = z.max(axis=1, keepdims=True, initial=-xp.inf)
        shift = xp.where(xp.isfinite(top), top, 0.0)
        terms = weight * xp.exp(xp.where(xp.isfinite(z), z - shift, z))
        total = terms.sum(axis=1, keepdims=True)
        some = total > 0
        side = xp.where(some, shift + xp.log(xp.where(some, total, 1.0)), -xp.inf)
        # An infinite term gets the whole gradient of its side.
        share = xp.where(
            xp.isinf(total), xp.isinf(terms).astype(scores.dtype), terms / xp.where(some & xp.isfinite(total), total, 1.0)
        )
        values = values + xp.logaddexp(0.0, side)[:, 0]
        gradient = gradient + sign * xp.exp(-xp.logaddexp(0.0, -side)) * share
    return values, gradient.astype(scores.dtype)


class _Thresholds:
    """Thresholds in the component's ``cfg``, saved with it: one number per label, in scores."""

    cfg: dict[str, Any]
    labels: Sequence[str]
    model: Any

    def thresholds(self) -> Array:
        """``[L]``; zeros if none were set."""
        given = self.cfg.get("thresholds")
        xp = self.model.ops.xp
        return xp.zeros(len(self.labels), dtype="f") if given is None else xp.asarray(given, dtype="f")

    def set_thresholds(self, thresholds: Sequence[float] | float) -> None:
        """Set one threshold for all labels, or one per label; a label is predicted if its score is above its threshold."""
        values = [float(thresholds)] * len(self.labels) if isinstance(thresholds, (int, float)) else list(thresholds)
        if len(values) != len(self.labels):
            raise ValueError(
                f"set_thresholds: `thresholds` must be a number or one per label, {len(self.labels)}; got {len(values)}."
            )
        # JSON has no infinity; 1e4 has the same effect.
        self.cfg["thresholds"] = [min(max(float(value), -1e4), 1e4) for value in values]

    def _probabilities(self, scores: Array) -> Array:
        xp = self.model.ops.xp
        return xp.exp(-xp.logaddexp(0.0, self.thresholds() - scores)).astype("f")


class ManyhotTextCategorizer(_Thresholds, MultiLabel_TextCategorizer):
    """The multi-label text categoriser with ZLPR instead of squared error.

    A label that is missing from ``cats`` is unknown and excluded from the loss. Values between 0 and 1 are soft labels.
    """

    def __init__(self, vocab: Any, model: Any, name: str = "manyhot_textcat", *, scorer: Any = None) -> None:
        super().__init__(vocab, without_logistic(model), name, threshold=0.5, scorer=scorer)
        self.cfg["thresholds"] = None

    def scores(self, docs: Iterable[Any]) -> Array:
        """Raw scores ``[N, L]`` of documents."""
        docs = list(docs)
        if not any(len(doc) for doc in docs):
            return self.model.ops.xp.full((len(docs), len(self.labels)), LOWEST, dtype="f")
        return self.model.ops.asarray(self.model.predict(docs))

    def predict(self, docs: Iterable[Any]) -> Array:
        """``sigma(s - t)``, ``[N, L]``: above 0.5 where the label is predicted."""
        return self._probabilities(self.scores(docs))

    def get_loss(self, examples: Iterable[Any], scores: Array) -> tuple[float, Array]:
        """The sum of the rows' losses, and its gradient ``[N, L]``."""
        examples = list(examples)
        self._validate_categories(examples)
        truths, known = self._examples_to_truth(examples)
        xp = self.model.ops.xp
        values, gradient = zlpr_rows(xp, scores, self.model.ops.asarray(truths), self.model.ops.asarray(known) > 0)
        return float(values.sum()), gradient

    def tune(
        self, examples: Iterable[Any], *, objective: str = "macro-F1", per_label: bool = True, **settings: Any
    ) -> TunedRule:
        """Tune the thresholds on held-out examples and set the recommended ones.

        Args:
            examples: held-out examples; earlier components must have processed their ``predicted`` documents.
            objective: the objective of ``manyhot.tune_rule``.
            per_label: tune one threshold per label.
            **settings: further settings of ``tune_rule``.
        """
        examples = list(examples)
        truths, known = self._examples_to_truth(examples)
        scores = torch.from_numpy(self.model.ops.to_numpy(self.scores(eg.predicted for eg in examples)).copy())
        truth = torch.from_numpy(self.model.ops.to_numpy(truths)) > 0.5
        where = torch.from_numpy(self.model.ops.to_numpy(known)) > 0
        tuned = tune_rule(scores, truth, objective=objective, per_label=per_label, where=where, **settings)
        self.set_thresholds(tuned.recommended.threshold)
        return tuned

    def _validate_categories(self, examples: Iterable[Any]) -> None:
        for example in examples:
            for name, value in example.reference.cats.items():
                if not 0 <= value <= 1:
                    raise ValueError(
                        f"manyhot_textcat: a category must lie in [0, 1]; got {value!r} for {name!r}."
                        " Leave an unknown category out of `cats`."
                    )


class ManyhotSpanCategorizer(_Thresholds, SpanCategorizer):
    """The span categoriser with ZLPR over all candidate spans and labels of a document, as in GlobalPointer."""

    def __init__(self, vocab: Any, model: Any, suggester: Any, name: str = "manyhot_spancat", **settings: Any) -> None:
        super().__init__(vocab, without_logistic(model), suggester, name, threshold=0.5, **settings)
        self.cfg["thresholds"] = None

    def predict(self, docs: Iterable[Any]) -> Any:
        """``(candidates, sigma(s - t))``."""
        indices, scores = super().predict(docs)
        return indices, self._probabilities(scores) if len(scores) else scores

    def get_loss(self, examples: Iterable[Any], spans_scores: Any) -> tuple[float, Array]:
        """The sum of the documents' losses, and its gradient ``[candidates, L]``."""
        spans, scores = spans_scores
        xp = self.model.ops.xp
        # The stock gradient is scores - targets, so with scores of 0 it gives the aligned targets.
        _, minus_targets = super().get_loss(examples, (spans, xp.zeros_like(scores)))
        total, gradient, start = 0.0, xp.zeros_like(scores), 0
        for length in self.model.ops.to_numpy(spans.lengths).tolist():
            rows = slice(start, start + length)
            start += length
            if length:
                row = scores[rows].reshape(1, -1)
                values, own = zlpr_rows(xp, row, -minus_targets[rows].reshape(1, -1), xp.ones_like(row, dtype=bool))
                total += float(values.sum())
                gradient[rows] = own.reshape(length, -1)
        return total, gradient


def without_logistic(model: Any) -> Any:
    """Remove the logistic output layer of a stock multi-label model, in place, so that it returns scores."""
    last = model
    while last.layers:
        last = last.layers[-1]
    if "softmax" in last.name:
        raise ValueError(
            f"manyhot: the model must be multi-label; it ends in {last.name!r}. Set exclusive_classes = false in its config."
        )
    if last.name == "logistic" and not model.replace_node(last, noop()):
        raise ValueError("manyhot: the logistic output layer of this model could not be removed. Use an architecture of spaCy.")
    return model


@spacy.Language.factory(
    "manyhot_textcat",
    assigns=["doc.cats"],
    default_config={"model": DEFAULT_MULTI_TEXTCAT_MODEL, "scorer": {"@scorers": "spacy.textcat_multilabel_scorer.v2"}},
    default_score_weights={"cats_score": 1.0, "cats_micro_f": None, "cats_macro_f": None, "cats_macro_auc": None},
)
def make_textcat(nlp: Any, name: str, model: Any, scorer: Callable[..., Any] | None) -> ManyhotTextCategorizer:
    """The factory ``manyhot_textcat``."""
    return ManyhotTextCategorizer(nlp.vocab, model, name, scorer=scorer)


@spacy.Language.factory(
    "manyhot_spancat",
    assigns=["doc.spans"],
    default_config={
        "spans_key": DEFAULT_SPANS_KEY,
        "max_positive": None,
        "model": DEFAULT_SPANCAT_MODEL,
        "suggester": {"@misc": "spacy.ngram_suggester.v1", "sizes": [1, 2, 3]},
        "scorer": {"@scorers": "spacy.spancat_scorer.v1"},
    },
    default_score_weights={f"spans_{DEFAULT_SPANS_KEY}_f": 1.0},
)
def make_spancat(
    nlp: Any,
    name: str,
    suggester: Any,
    model: Any,
    spans_key: str,
    scorer: Callable[..., Any] | None,
    max_positive: int | None,
) -> ManyhotSpanCategorizer:
    """The factory ``manyhot_spancat``."""
    return ManyhotSpanCategorizer(
        nlp.vocab, model, suggester, name, spans_key=spans_key, max_positive=max_positive, scorer=scorer
    )
