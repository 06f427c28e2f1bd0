"""The integrations by name: the module, the package it needs and the extra that installs that package."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from manyhot._checks import check_choice


@dataclass(frozen=True)
class Integration:
    """One framework that manyhot integrates with.

    Attributes:
        name: the module under ``manyhot.integrations`` and the page under ``docs/integrations``.
        package: the package that the module imports; None if it needs none.
        extra: the extra of manyhot that installs the package; None if there is nothing to install.
        summary: a one-line description.
    """

    name: str
    package: str | None
    extra: str | None
    summary: str


_ENTRIES = (
    Integration("huggingface", "transformers", "huggingface", "Trainer loss, collators, metrics, folded rules, span models"),
    Integration("jax", "jax", "jax", "the losses as JAX functions, for Optax and Flax"),
    Integration("keras", "keras", "keras", "the losses and metrics as Keras 3 classes"),
    Integration("lightning", "lightning", "lightning", "a callback that tunes the rule and writes it beside the checkpoint"),
    Integration("spacy", "spacy", "spacy", "text and span categorisers trained by ZLPR"),
    Integration("sentence_transformers", "sentence_transformers", "sentence-transformers", "losses for CrossEncoder"),
    Integration("fastai", "fastai", "fastai", "losses with activation and decodes"),
    Integration("optuna", "optuna", "optuna", "a search over training settings that can be resumed after a kill"),
    Integration("mlflow", "mlflow", "mlflow", "a bundle of texts, tables, images or spans as a pyfunc model"),
    Integration("tracking", None, None, "one callback for MLflow and Weights & Biases"),
)

INTEGRATIONS: Mapping[str, Integration] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def framework(name: str) -> Any:
    """Import the package that the integration ``name`` needs.

    Raises:
        ImportError: if it is not installed; the message names the extra.

    Example:
        >>> framework("flax")
        Traceback (most recent call last):
            ...
        ValueError: framework: `name` must be one of 'huggingface', ..., 'tracking'; got 'flax'.
    """
    check_choice("framework", "name", name, tuple(INTEGRATIONS))
    entry = INTEGRATIONS[name]
    assert entry.package is not None
    try:
        return importlib.import_module(entry.package)
    except ModuleNotFoundError as error:
        if error.name != entry.package:
            raise
        raise ImportError(
            f"manyhot.integrations.{name}: the package {entry.package} is not installed."
            f" Install it with: pip install 'manyhot[{entry.extra}]'"
        ) from None
