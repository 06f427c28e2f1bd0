"""The loss under ``torch.compile`` on a CUDA device, beside the same call captured in a CUDA graph, and the host's part of it.

    python -m benchmarks.compiled_gpu [--output PAGE.md]

Device times are medians over replays of a captured graph of eight calls with their backward: of the eager call, of the
compiled one, and of the compiled one without the lowering that finishes gradients in place. Then the time of a step as a user
sees it, the host counted: eager, compiled, compiled with ``mode="reduce-overhead"``, and torch's BCE. Gradients are compared
with float64 before anything is timed.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.gpu_engine import backward, error, graph_milliseconds, problem, table
from manyhot import SparseLabels, zlpr_loss
from manyhot.engines import in_place

# Compiling takes longer than measuring, so that few cases are tried.
CASES = [
    (16384, 4096, torch.bfloat16, "uint8"),
    (16384, 4096, torch.float16, "uint8"),
    (16384, 4096, torch.float32, "uint8"),
    (16384, 4096, torch.bfloat16, "lists"),
    (1024, 131072, torch.bfloat16, "uint8"),
    (256, 80, torch.bfloat16, "uint8"),
]
STEPS = [(16384, 4096, torch.bfloat16), (256, 80, torch.bfloat16), (256, 80, torch.float16)]
DEVICE_HEAD = ["rows x labels", "type", "labels", "eager, captured", "compiled, captured", "times", "gradient copied", "error"]
STEP_HEAD = ["rows x labels", "type", "eager", "compiled", "reduce-overhead", "torch's BCE eager", "BCE compiled"]


def loss_of_lists(logits, indices, offsets, num_labels):
    return zlpr_loss(logits, SparseLabels(indices, offsets, num_labels, validate=False))


def compiled_call(logits, labels, kind, **settings):
    """A call of the compiled loss and its backward, with the values of labels as graph inputs."""
    torch._dynamo.reset()
    if kind == "lists":
        lists = SparseLabels.from_dense(labels)
        function = torch.compile(loss_of_lists, fullgraph=True, dynamic=False, **settings)
        return lambda: backward(function(logits, lists.indices, lists.offsets, lists.num_labels), logits)
    function = torch.compile(zlpr_loss, fullgraph=True, dynamic=False, **settings)
    return lambda: backward(function(logits, labels), logits)


def eager_call(logits, labels, kind):
    given = SparseLabels.from_dense(labels) if kind == "lists" else labels
    return lambda: backward(zlpr_loss(logits, given), logits)


def device_cells(rows, num_labels, dtype, kind):
    """A row of the table of device times."""
    logits, labels = problem(rows, num_labels, dtype)
    eager, compiled = eager_call(logits, labels, kind), compiled_call(logits, labels, kind)
    off = error(compiled(), logits, labels)
    name = [f"{rows:,} x {num_labels:,}", str(dtype)[6:], kind]
    if off > 3 * max(error(backward(zlpr_loss(logits, labels, engine="torch"), logits), logits, labels), 1e-6):
        return [*name, f"error {off:.1e}: not timed"]
    first, second = graph_milliseconds(eager), graph_milliseconds(compiled)
    copied = f"{graph_milliseconds(copying(logits, labels, kind)):.4f}" if (dtype, kind) == CASES[0][2:] else ""
    return [*name, f"{first:.4f}", f"{second:.4f}", f"{second / first:.2f}", copied, f"{off:.0e}"]


def copying(logits, labels, kind):
    """The compiled call as Inductor would run it by itself."""
    from torch._inductor import config, lowering

    name = torch.ops.manyhot.scaled.default
    own, known = lowering.lowerings.pop(name, None), in_place._register
    in_place._register = lambda: False
    try:
        with config.patch(force_disable_caches=True):
            call = compiled_call(logits, labels, kind)
            call()
    finally:
        in_place._register = known
        lowering.lowerings.pop(name, None)
        if own is not None:
            lowering.lowerings[name] = own
    return call


def step_milliseconds(functions, calls=50, rounds=11):
    """A step of each with the host counted, by rounds in which they take turns."""
    taken = [[] for _ in functions]
    for _ in range(rounds + 1):
        for function, own in zip(functions, taken, strict=True):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(calls):
                function()
            torch.cuda.synchronize()
            own.append((time.perf_counter() - begun) / calls * 1e3)
    return [statistics.median(own[1:]) for own in taken]


def step_cells(rows, num_labels, dtype):
    """A row of the table of steps."""
    logits, labels = problem(rows, num_labels, dtype)
    floats = labels.to(dtype)
    bce = torch.compile(binary_cross_entropy_with_logits, dynamic=False)
    calls = [eager_call(logits, labels, "uint8"), compiled_call(logits, labels, "uint8")]
    for call in calls:
        call()
    overhead = torch.compile(zlpr_loss, fullgraph=True, dynamic=False, mode="reduce-overhead")

    def graphed():
        torch.compiler.cudagraph_mark_step_begin()
        return backward(overhead(logits, labels), logits)

    for _ in range(4):
        last = graphed().clone()
    off = error(last, logits, labels)
    calls += [graphed, lambda: backward(binary_cross_entropy_with_logits(logits, floats), logits)]
    calls += [lambda: backward(bce(logits, floats), logits)]
    times = step_milliseconds(calls)
    return [f"{rows:,} x {num_labels:,}", str(dtype)[6:], *(f"{taken:.4f}" for taken in times), f"{off:.0e}"]


def page(device, steps):
    import triton

    return f"""# The loss under torch.compile on {torch.cuda.get_device_name()}

{datetime.date.today()}, torch {torch.__version__}, triton {triton.__version__}. Command: `python -m benchmarks.compiled_gpu`.

Forward and backward in milliseconds on the device, medians over replays of a captured graph of eight calls. "times" is what
compiled takes of eager; "gradient copied" is compiled without the lowering that finishes the gradient where it is. The error
is the largest of the compiled gradient against float64.

{table(DEVICE_HEAD, device)}

A step with the host counted, in milliseconds: fifty calls and their backward between two waits for the device, medians of
rounds in which all take turns.

{table([*STEP_HEAD, "error, reduce-overhead"], steps)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    settings = parser.parse_args()
    torch._dynamo.config.recompile_limit = 64
    device, steps = [], []
    for own, cells, cases in ((device, device_cells, CASES), (steps, step_cells, STEPS)):
        for case in cases:
            own.append(cells(*case))
            print(own[-1], flush=True)
            torch.cuda.empty_cache()
            if settings.output:
                settings.output.write_text(page(device, steps))
    if not settings.output:
        print(page(device, steps))


if __name__ == "__main__":
    main()
