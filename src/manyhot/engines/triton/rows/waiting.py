"""Programs that wait for others (CUDA): a bound on how long."""

from __future__ import annotations

import triton
import triton.language as tl

from manyhot.engines.triton.math import COMPILED

# After this many polls, which take ten seconds or more, a waiting program traps: CUDA reports an error, and nothing waits
# forever.
PATIENCE = 1 << 24
COUNT_LOOK = tl.constexpr(f"{{ .reg .pred late; setp.ge.s32 late, $1, {PATIENCE}; @late trap; add.s32 $0, $1, 1; }}")


@triton.jit
def count_look(looks):
    """Count a poll; the last one traps, which ends the kernel with an error."""
    if COMPILED:
        looks = tl.inline_asm_elementwise(COUNT_LOOK, "=r,r", [looks], dtype=tl.int32, is_pure=False, pack=1)
    else:
        looks += 1
    return looks
