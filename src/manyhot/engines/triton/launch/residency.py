"""The number of multiprocessors that a kernel can use. Kernels whose programs wait for each other depend on it.

Programs of one row wait for each other, so all of them must be resident at once. A multiprocessor holds at least one program of
any kernel that can be launched, so a row with no more programs than multiprocessors is safe. The current context may have fewer
multiprocessors than the device: a green context owns a part of them, and MPS can limit a process to a part. The current stream
may have fewer too, because it can belong to a green context while another context is current. The driver is asked for all three
limits.

Kernels of other streams, or of other processes under MPS, may run at the same time. Most of them end by themselves, and the
missing programs then start. Only if several waiting kernels fill the device together can a program wait in vain. It gives up
after a while (``PATIENCE`` in ``rows.waiting``), so that the kernel fails with an error instead of hanging.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

# The driver's resource type SM, the offset of the SM count in its struct ``CUdevResource``, and the bytes reserved for one.
_SM_RESOURCE = 1
_SM_COUNT_AT = 96
_RESOURCE_BYTES = 256
# The affinity type SM_COUNT. The driver's struct ``CUexecAffinityParam`` holds the type, then the count.
_SM_AFFINITY = 0


def multiprocessors(index: int, *, of_context: bool) -> int:
    """The multiprocessors of device number ``index``: all of them, or those that the current context and stream may use."""
    if not of_context:
        return _of_device(index)
    if torch.cuda.device_count() > 1 and index != torch.cuda.current_device():
        with torch.cuda.device(index):
            return min(_of_device(index), *_of_context())
    return min(_of_device(index), *_of_context())


@functools.cache
def _of_device(index: int) -> int:
    count: int = torch.cuda.get_device_properties(index).multi_processor_count
    return count


def _of_context() -> list[int]:
    """The limits that the driver reports for the current context and stream, after one that limits nothing."""
    found, driver = [1 << 30], _driver()
    if driver is None:
        return found
    context, green = ctypes.c_void_p(), ctypes.c_void_p()
    resource = (ctypes.c_uint * (_RESOURCE_BYTES // 4))()
    # A stream is not queried while it is being captured.
    if not torch.cuda.is_current_stream_capturing():
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        green_found = _ask(driver, "cuStreamGetGreenCtx", stream, ctypes.byref(green)) and green.value
        if green_found and _ask(driver, "cuGreenCtxGetDevResource", green, ctypes.byref(resource), _SM_RESOURCE):
            found.append(resource[_SM_COUNT_AT // 4])
    if _ask(driver, "cuCtxGetCurrent", ctypes.byref(context)) and context.value:
        if _ask(driver, "cuCtxGetDevResource", context, ctypes.byref(resource), _SM_RESOURCE):
            found.append(resource[_SM_COUNT_AT // 4])
        affinity = (ctypes.c_uint * 4)()
        if _ask(driver, "cuCtxGetExecAffinity", ctypes.byref(affinity), _SM_AFFINITY):
            found.append(affinity[1])
    return [count for count in found if count > 0]


def _ask(driver: Any, name: str, *arguments: Any) -> bool:
    """Call a function of the driver; False if the driver lacks it or returns an error."""
    try:
        return int(driver[name](*arguments)) == 0
    except AttributeError:
        return False


@functools.cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
