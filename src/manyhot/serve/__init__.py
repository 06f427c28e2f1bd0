"""Serving a model over HTTP: predictions, explanations, a page, metrics; needs the extra ``serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyhot.serve.settings import ServeSettings

if TYPE_CHECKING:
    from manyhot.serve.supervisor import serve

__all__ = ["ServeSettings", "serve"]


def __getattr__(name: str) -> Any:
    """``serve`` is imported on first use: its packages are an extra."""
    if name != "serve":
        raise AttributeError(f"module 'manyhot.serve' has no attribute {name!r}")
    try:
        from manyhot.serve.supervisor import serve
    except ImportError as error:
        raise ImportError(f"serve: needs the package {error.name}. Install it with: pip install manyhot[serve]") from error
    return serve
