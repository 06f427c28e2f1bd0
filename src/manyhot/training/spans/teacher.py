"""Distillation of spans: the probabilities of a trained span model become the soft labels of a new one."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path

from manyhot.data.spans.examples import SpanExamples, TextSpan, in_reading_order
from manyhot.training.spans.bundle import TrainedSpanModel, is_span_bundle, load_span_model

# Less probable spans are left out, because a text has a cell for every pair of tokens and every type.
LEAST = 0.01


def open_span_teacher(folder: str | Path, examples: SpanExamples, *, device: str = "cpu") -> TrainedSpanModel:
    """The span model of a run, which must know the types of ``examples``."""
    if not is_span_bundle(folder):
        raise ValueError(f"train: `teacher` must be a run or model folder of spans; got {str(folder)!r}.")
    teacher = load_span_model(folder, device=device)
    missing = [name for name in examples.type_names if name not in set(teacher.type_names)]
    if missing:
        raise ValueError(
            f"train: `teacher` must know all types of the examples; {str(folder)!r} does not know {missing[0]!r}"
            f" ({len(missing)} of {len(examples.type_names)})."
        )
    return teacher


def taught_spans(teacher: TrainedSpanModel, examples: SpanExamples, share: float) -> SpanExamples:
    """The same texts with soft labels ``(1 - share) t + share p``, p the teacher's probability. Values below 0.01 are left out.

    If the teacher's probability of a marked span is below 0.01, p is 0. Types that the examples do not have are left out.

    Args:
        teacher: a model that knows the types of ``examples``.
        examples: texts with marked spans, hard or soft.
        share: weight of the teacher, in [0, 1].
    """
    lowest = math.log(LEAST / (1 - LEAST)) / (2 if teacher.link == "soft" else 1)
    reader = teacher.with_settings(replace(teacher.settings, decode="all", threshold=lowest))
    types, spans, values = set(examples.type_names), [], []
    with warnings.catch_warnings():
        # decode_spans warns if a text has too many cells above the threshold; the best of them are enough.
        warnings.filterwarnings("ignore", message="decode_spans")
        for row, found in enumerate(reader.iter_predict(examples)):
            marked = examples.spans[row]
            own = [1.0] * len(marked) if examples.values is None else examples.values[row]
            mixed = {span: (1 - share) * value for span, value in zip(marked, own, strict=True)}
            for each in found:
                if each.type in types:
                    span = TextSpan(each.type, each.start, each.end)
                    mixed[span] = mixed.get(span, 0.0) + share * each.probability
            kept = in_reading_order([span for span, value in mixed.items() if value >= LEAST])
            spans.append(kept)
            values.append([min(mixed[span], 1.0) for span in kept])
    return replace(examples, spans=spans, values=values)
