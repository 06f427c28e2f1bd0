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
    """One framework that manyhot works in.

    Attributes:
        name: the module under ``manyhot.integrations`` and the page under ``docs/integrations``.
        package: what the module imports, None where it works on plain objects.
        extra: the extra of manyhot that installs the package, None where nothing is to be installed.
        summary: one line for people.
    """

    name: str
    package: str | None
    extra: str | None
    summary: str


_ENTRIES = (
    Integration("huggingface", "transformers", "huggingface", "Trainer loss, collators, metrics, folded rules, span models"),
    Integration("jax", "jax", "jax", "the losses as JAX functions, for Optax and Flax"),
)

INTEGRATIONS: Mapping[str, Integration] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def framework(name: str) -> Any:
    """The package that the integration ``name`` needs, imported.

    Raises:
        ImportError: where it is not installed; the message names the extra.

    Example:
        >>> framework("flax")
        Traceback (most recent call last):
            ...
        ValueError: framework: `name` must be one of 'huggingface', 'jax'...; got 'flax'.
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
