"""Kernels that start before the one before them in the stream has ended (CUDA, from Hopper on).

A kernel usually starts only when all memory writes of the one before it are complete, which takes a microsecond: much of a
small loss. One that calls ``start_early`` first is launched with an attribute (``launch.direct``) by which its programs may
start earlier. They wait before they read or write any memory, so the order of all memory accesses is the same as before. While
they wait, memory may already be fetched into the L2 cache (``fetch_early``), which all writes go through too.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from manyhot.engines.triton.math import COMPILED


def _all_devices_wait() -> bool:
    """Whether every device has the instructions. Kernels are compiled for the current one, which may be any of them."""
    if not COMPILED.value or not torch.cuda.is_available() or torch.version.cuda is None:
        return False
    return all(torch.cuda.get_device_capability(device) >= (9, 0) for device in range(torch.cuda.device_count()))


EARLY = tl.constexpr(_all_devices_wait())


@triton.jit
def fetch_early(places):
    """Fetch memory into the L2 cache while the kernel before still runs, a sector of 32 bytes for each address; nobody waits
    for it. To be called before ``start_early``."""
    if EARLY:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [places.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def start_early():
    """Let the next kernel start, and wait until the one before has ended. To be called before any access to memory."""
    if EARLY:
        tl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; griddepcontrol.wait; mov.u32 $0, 0;", "=r", [], dtype=tl.int32,
            is_pure=False, pack=1,
        )  # fmt: skip
