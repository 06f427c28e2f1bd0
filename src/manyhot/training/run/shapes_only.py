"""Builds modules without weights: names and sizes are known, but nothing is allocated and no random number is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DRAWS = {Tensor.normal_, nn.init.normal_, nn.init.trunc_normal_, nn.init.xavier_normal_, nn.init.kaiming_normal_}


class _Undrawn(TorchFunctionMode):
    """Skips normal initialisation: on the meta device it only makes torch import its compiler, which takes seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Modules made inside have parameters and buffers on the device ``meta``."""
    with torch.device("meta"), _Undrawn():
        yield
