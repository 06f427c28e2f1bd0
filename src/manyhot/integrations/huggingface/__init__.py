"""manyhot in Hugging Face's ``Trainer``: loss, collators, metrics, folded rules, bundles and span models."""

from __future__ import annotations

import importlib
from typing import Any

from manyhot.integrations.huggingface.collate import MultiLabelCollator
from manyhot.integrations.huggingface.fold import fold_calibration, fold_rule, pipeline_decisions, save_folded, score_texts
from manyhot.integrations.huggingface.loss import TrainerLoss
from manyhot.integrations.huggingface.metrics import TrainerMetrics

# The homes of these import transformers.
_LAZY = {
    "GlobalPointerConfig": "spans",
    "GlobalPointerForTokenClassification": "spans",
    "SpanCollator": "spans",
    "TrainerChecks": "trainer",
    "TrainerSpanMetrics": "spans",
    "from_manyhot": "bundle",
    "to_manyhot": "bundle",
    "trainer_parts": "trainer",
}


def __getattr__(name: str) -> Any:
    """Names whose home imports transformers are imported when they are asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


__all__ = [
    "GlobalPointerConfig",
    "GlobalPointerForTokenClassification",
    "MultiLabelCollator",
    "SpanCollator",
    "TrainerChecks",
    "TrainerLoss",
    "TrainerMetrics",
    "TrainerSpanMetrics",
    "fold_calibration",
    "fold_rule",
    "from_manyhot",
    "pipeline_decisions",
    "save_folded",
    "score_texts",
    "to_manyhot",
    "trainer_parts",
]
