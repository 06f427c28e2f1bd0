"""The quality of a span model: counts of predicted and marked spans, and the threshold that is best for F1."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import torch

from manyhot.data.spans.examples import SpanExamples
from manyhot.decisions.cuts import best_gap, clearance, midway
from manyhot.metrics.spans.scores import SpanMetrics
from manyhot.training.spans.bundle import TrainedSpanModel
from manyhot.training.spans.inputs import Array
from manyhot.training.spans.windows import Windows

# Thresholds are tuned between these.
LOWEST, HIGHEST = -4.0, 4.0


def score_spans(
    model: TrainedSpanModel, examples: SpanExamples, *, batch_size: int = 256, windows: Windows | None = None
) -> SpanMetrics:
    """Compare predicted and marked spans by their characters.

    Marked spans that do not align with tokens count as missed. A soft label above one half counts as a span.

    Args:
        model: the model to score.
        examples: texts with marked spans.
        batch_size: windows per batch.
        windows: the windows of the same texts, if ``model.windows`` has made them already.

    Example:
        >>> from manyhot.data.spans.examples import TextSpan
        >>> from manyhot.training.spans.settings import SpanSettings
        >>> from manyhot.training.spans.train import train_spans
        >>> examples = SpanExamples(["Ada met Bob"] * 8, [[TextSpan("PER", 0, 3), TextSpan("PER", 8, 11)]] * 8)
        >>> model = train_spans(examples, SpanSettings(hidden=8, epochs=1, validation=0.0))
        >>> score_spans(model, examples).counts().gold
        16
    """
    metrics, examples = SpanMetrics(), examples.hardened()
    lost = [[span.type for span in row] for row in examples.fragmented]
    if windows is None:
        found = model.iter_predict(examples, batch_size=batch_size)
    else:
        found = model.read_windows(windows, batch_size=batch_size)
    metrics.update(found, examples.spans, unaligned=lost)
    return metrics


def tuned_threshold(
    model: TrainedSpanModel, examples: SpanExamples, *, windows: Windows | None = None
) -> tuple[float, float | None]:
    """``(threshold, F1)`` with the best F1 on these texts; F1 is None if no marked span was found.

    Decoding takes spans in order of falling score, so one pass with a low threshold also gives the spans for every higher one.
    """
    examples = examples.hardened()
    ranked, hits = ranked_spans(model, examples, windows=windows)
    if not hits.any():
        return model.settings.threshold, None
    values = 2 * np.cumsum(hits) / (np.arange(1, len(hits) + 1) + examples.num_spans)
    # A threshold lies between two different scores, and is at most HIGHEST.
    upper, lower = (torch.tensor(each, dtype=torch.float32) for each in (ranked, np.append(ranked[1:], LOWEST)))
    highest = upper.clamp(max=HIGHEST)
    reached = torch.from_numpy(values).masked_fill(highest <= lower, -math.inf)
    best = best_gap(reached, clearance(highest, lower))
    return min(float(midway(upper[best], lower[best])), HIGHEST), float(values[best])


def ranked_spans(model: TrainedSpanModel, examples: SpanExamples, *, windows: Windows | None = None) -> tuple[Array, Array]:
    """The scores ``[K]`` of the spans decoded with threshold ``LOWEST``, in falling order, and which of them are correct."""
    low = model.with_settings(replace(model.settings, threshold=LOWEST))
    scores, hits = [], []
    with warnings.catch_warnings():
        # At so low a threshold a row may have too many cells, and decode_spans warns; its best cells are enough here.
        warnings.filterwarnings("ignore", message="decode_spans")
        predicted = low.iter_predict(examples, batch_size=256) if windows is None else low.read_windows(windows, batch_size=256)
        for row, found in enumerate(predicted):
            marked = set(examples.spans[row])
            scores += [span.score for span in found]
            hits += [(span.type, span.start, span.end) in marked for span in found]
    order = np.argsort(-np.array(scores), kind="stable")
    return np.array(scores, dtype=np.float64)[order], np.array(hits, dtype=bool)[order]
