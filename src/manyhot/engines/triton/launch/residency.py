"""How many multiprocessors the programs of a kernel have: kernels whose programs wait for each other rely on it.

Programs of one row wait for each other, so all of them must run at once. A multiprocessor runs at least one program of any
kernel that can be launched, so a row with no more programs than multiprocessors is safe. The current context may have fewer of
them than the device: a green context has a part, and MPS can limit a process to one. So may the current stream, which can
belong to a green context while another context is current. The driver is asked for all three.

Kernels of other streams, or of other processes under MPS, run beside. Most of them end by themselves, and the programs that are
missing come then. Where several that wait fill the device together, a program can wait in vain: it gives up after a while
(``PATIENCE`` in ``rows.merge``), which is an error and no hang.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

# Fields of the driver's structs: the resource type SM, and where ``CUdevResource`` has the number of multiprocessors.
_SM_RESOURCE = 1
_SM_COUNT_AT = 96
_RESOURCE_BYTES = 256
# The affinity type SM_COUNT of ``CUexecAffinityParam``, which is a type and a number.
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
    """A number for each question about the current context and stream that the driver answers, and one that limits nothing."""
    found, driver = [1 << 30], _driver()
    if driver is None:
        return found
    context, green = ctypes.c_void_p(), ctypes.c_void_p()
    resource = (ctypes.c_uint * (_RESOURCE_BYTES // 4))()
    # Nothing is asked of a stream that is being captured.
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
    """Call a function of the driver; False if it does not have it, or answers with an error."""
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
