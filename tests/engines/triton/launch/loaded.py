"""Kernels compiled for a device that is not there, and loaded by a driver that only notes them. Runs in a process of its own.

    python loaded.py compile | read

Prints every kernel that was loaded: its name, the digest of its machine code, warps, shared memory, where its parameters lie,
and whether it may start early. With ``read`` nothing may be compiled.
"""

import ctypes
import hashlib
import sys

import torch
from triton.runtime import driver
from triton.runtime.cache import triton_key

from manyhot import SparseLabels
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import calls, engine
from manyhot.engines.triton.launch import direct, launcher, loading, modules


def load_binary(name, code, shared, device):
    print(name, hashlib.sha256(code).hexdigest()[:16], shared, device)
    return 1, 2, 1024


def main() -> None:
    modules.load_binary = load_binary
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.is_available, torch.cuda.device_count, torch.version.cuda = lambda: True, lambda: 1, torch.version.cuda or "13.0"
    torch.cuda.current_device = lambda: 0
    modules.raw_stream = lambda: lambda _: 0
    direct.cuda_launch = lambda: ctypes.CDLL(None)["getppid"]
    calls._together = lambda _: 132
    if sys.argv[1] == "read":
        launcher.Launcher._compile = None

    def load_only(self, programs, x, others, numbers):
        kernel = self._load(0, programs, x, others, numbers)
        print(kernel.addresses.format, kernel.numbers.format, kernel.kept, kernel.threads, kernel.shared, kernel.early)

    launcher.Launcher.__call__ = load_only
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.zeros(64, 80, dtype=dtype)
        lists = SparseLabels.from_lists([[0]] * 64, num_labels=80)
        for terms in (DenseTerms(x > 0), SparseTerms(lists.indices, lists.offsets)):
            engine.fused(x, terms, row_scale=1 / 64, whole=True)
    assert driver._active is None, "Triton's driver was made"
    assert triton_key.cache_info().currsize == 0, "Triton's library was hashed"
    print(len(list(loading._folder().rglob("*" + loading.SUFFIX))))


if __name__ == "__main__":
    main()
