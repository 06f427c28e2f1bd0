"""The first call of the loss on a CUDA device: with an empty kernel cache, with a warm one, and for other numbers of rows.

    python -m benchmarks.first_call_gpu > benchmarks/results/first-call-h200-DATE.md

Every line is a process of its own. The first call is `zlpr_loss` and its backward in bfloat16 on uint8 labels, after torch has
used the device; the further calls have fewer rows. Kernels of other row counts are the same, so these calls compile nothing,
unless a long batch is followed by a short one, whose last program adds up the losses itself.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile

SHAPES = ((256, 80), (4096, 4096))
CALL = """
import time
import torch
rows, num_labels = {rows}, {num_labels}
x = torch.randn(rows, num_labels, device="cuda", dtype=torch.bfloat16)
t = (torch.rand(rows, num_labels, device="cuda") < 0.1).to(torch.uint8)
torch.cuda.synchronize()
begun = time.perf_counter()
from manyhot import zlpr_loss
taken = [time.perf_counter() - begun]
for count in (rows, rows - 7, 17):
    begun = time.perf_counter()
    zlpr_loss(x[:count].detach().requires_grad_(), t[:count]).backward()
    torch.cuda.synchronize()
    taken.append(time.perf_counter() - begun)
print(*[f"{{each:.3f}}" for each in taken])
"""


PAGE = """# The first call on {device}

{device}, torch {torch}, Triton {triton}, {date}. Command: `python -m benchmarks.first_call_gpu`. Seconds.

Every line is a process of its own, which has used torch on the device before. "import" is `from manyhot import zlpr_loss`; the
calls are `zlpr_loss` and its backward in bfloat16 on uint8 labels. A batch of 17 rows after one of 4,096 launches another
kernel, whose last program adds up the losses.

| rows x labels | kernel cache | import | first call | 7 rows fewer | 17 rows |
|---|---|---|---|---|---|"""


def main() -> None:
    """Print the page."""
    import torch
    import triton

    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    print(PAGE.format(**about, date=datetime.date.today()), flush=True)
    for rows, num_labels in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "warm", "warm"):
                env = os.environ | {"TRITON_CACHE_DIR": folder}
                command = [sys.executable, "-W", "ignore", "-c", CALL.format(rows=rows, num_labels=num_labels)]
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                print(f"| {rows:,} x {num_labels:,} | {cache} | {' | '.join(done.stdout.split())} |", flush=True)


if __name__ == "__main__":
    main()
