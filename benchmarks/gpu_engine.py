"""The loss on a CUDA device: forward and backward beside BCE and the public recipe, eager and compiled.

    python -m benchmarks.gpu_engine [--output FILE]

Every time is a median of `triton.testing.do_bench` over the public function and its backward, in one run. The floor is the
bytes that any implementation must move (read logits, read labels, write the gradient) over the copy bandwidth measured in
the same run. Nothing is printed for a contender whose gradient disagrees with float64.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from manyhot import SparseLabels, zlpr_loss

SHAPES = [(65536, 20), (65536, 128), (65536, 1024), (16384, 4096), (8192, 8192), (4096, 32768), (1024, 131072), (128, 1048576)]
POSITIVES = 5


def recipe(logits, labels):
    """The formula in circulation, with its constant."""
    signed = (1 - 2 * labels) * logits
    zero = torch.zeros_like(logits[..., :1])
    parts = (signed - labels * 1e12, signed - (1 - labels) * 1e12)
    return sum(torch.logsumexp(torch.cat([part, zero], -1), -1) for part in parts).mean()


def milliseconds(function):
    from triton.testing import do_bench

    return do_bench(function, warmup=5, rep=30, return_mode="median")


def copy_bandwidth():
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / (milliseconds(lambda: target.copy_(source)) * 1e-3)


def backward(loss, logits):
    (grad,) = torch.autograd.grad(loss, logits)
    return grad


def problem(rows, num_labels, dtype):
    logits = (3 * torch.randn(rows, num_labels, device="cuda")).to(dtype).requires_grad_()
    labels = torch.zeros(rows, num_labels, dtype=torch.uint8, device="cuda")
    labels.scatter_(1, torch.randint(0, num_labels, (rows, POSITIVES), device="cuda"), 1)
    return logits, labels


def error(grad, logits, labels, rows=64):
    """Largest difference to the float64 gradient of the first rows, relative to its largest entry."""
    exact = logits[:rows].detach().double().requires_grad_()
    wanted = backward(zlpr_loss(exact, labels[:rows], reduction="sum", engine="torch"), exact) / logits.shape[0]
    return ((grad[:rows].double() - wanted).abs().max() / wanted.abs().max()).item()


def row(rows, num_labels, dtype, bandwidth, compiled):
    logits, labels = problem(rows, num_labels, dtype)
    lists = SparseLabels.from_dense(labels)
    floats = labels.to(dtype)
    size = rows * num_labels * logits.element_size()
    floors = {"dense": (2 * size + rows * num_labels) / bandwidth, "lists": 2 * size / bandwidth, "soft": 3 * size / bandwidth}
    found = error(backward(zlpr_loss(logits, labels), logits), logits, labels)
    plain = error(backward(zlpr_loss(logits, labels, engine="torch"), logits), logits, labels)
    if found > max(3 * plain, 1e-5):
        return [f"{rows:,} x {num_labels:,}", str(dtype)[6:], f"error {found:.1e} against {plain:.1e}: not timed"]
    times = {
        "dense": milliseconds(lambda: backward(zlpr_loss(logits, labels), logits)),
        "lists": milliseconds(lambda: backward(zlpr_loss(logits, lists), logits)),
        "soft": milliseconds(lambda: backward(zlpr_loss(logits, floats), logits)),
        "BCE": milliseconds(lambda: backward(binary_cross_entropy_with_logits(logits, floats), logits)),
        "recipe": milliseconds(lambda: backward(recipe(logits, floats), logits)),
        "BCE compiled": milliseconds(lambda: backward(compiled[0](logits, floats), logits)),
        "recipe compiled": milliseconds(lambda: backward(compiled[1](logits, floats), logits)),
    }
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    backward(zlpr_loss(logits, labels), logits)
    extra = torch.cuda.max_memory_allocated() - before
    cells = [f"{times[kind]:.3f} ({times[kind] / (floors[kind] * 1e3):.2f})" for kind in floors]
    others = [f"{times[name]:.3f} ({times[name] / times['dense']:.1f}x)" for name in list(times)[3:]]
    name = str(dtype)[6:]
    return [f"{rows:,} x {num_labels:,}", name, *cells, *others, f"{extra / size:.2f}", f"{found:.0e} / {plain:.0e}"]


def graph_microseconds(function):
    """Device time of one call without the host, by replaying a captured graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return 1e3 * milliseconds(graph.replay)


def small_rows():
    for rows, num_labels in ((256, 80), (65536, 20), (65536, 128)):
        logits, labels = problem(rows, num_labels, torch.bfloat16)
        floats = labels.to(torch.bfloat16)
        ours = graph_microseconds(lambda: backward(zlpr_loss(logits, labels), logits))  # noqa: B023
        bce = graph_microseconds(lambda: backward(binary_cross_entropy_with_logits(logits, floats), logits))  # noqa: B023
        one = graph_microseconds(lambda: logits.detach() * 2)  # noqa: B023
        host = 1e3 * milliseconds(lambda: backward(zlpr_loss(logits, labels), logits))  # noqa: B023
        host_bce = 1e3 * milliseconds(lambda: backward(binary_cross_entropy_with_logits(logits, floats), logits))  # noqa: B023
        yield [f"{rows:,} x {num_labels:,}", *(f"{value:.1f}" for value in (ours, bce, one, host, host_bce))]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in rows])


def page():
    import triton

    bandwidth = copy_bandwidth()
    compiled = [torch.compile(binary_cross_entropy_with_logits, dynamic=False), torch.compile(recipe, dynamic=False)]
    torch._dynamo.config.recompile_limit = 64
    rows = []
    for dtype in (torch.bfloat16, torch.float32):
        for shape in SHAPES:
            rows.append(row(*shape, dtype, bandwidth, compiled))
            print(rows[-1], file=sys.stderr, flush=True)
    head = ["rows x labels", "type", "ours, uint8", "ours, index lists", "ours, soft"]
    head += ["BCE eager", "recipe eager", "BCE compiled", "recipe compiled", "peak / logits", "error ours / plain"]
    small = [
        "rows x labels",
        "ours, device us",
        "BCE eager, device us",
        "one multiplication",
        "ours with host",
        "BCE with host",
    ]
    return f"""# The loss on {torch.cuda.get_device_name()}

{datetime.date.today()}, torch {torch.__version__}, triton {triton.__version__}, copy {bandwidth / 1e12:.2f} TB/s.
Command: `python -m benchmarks.gpu_engine`. {POSITIVES} positives a row.

Forward and backward in milliseconds, medians; in brackets the multiple of the byte floor (ours) or of our time on uint8 labels
(others). "peak / logits" is the extra peak memory of one call in units of the logits: 1 is the gradient alone. The error
is the largest of the gradient against float64, beside that of the plain form in the same type.

Times are of the public call with its host side; the last table has device times of captured graphs.

{table(head, rows)}

Short rows in bfloat16, microseconds: replay of a captured graph (device time), and the call with its host side.

{table(small, small_rows())}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    settings = parser.parse_args()
    text = page()
    if settings.output:
        settings.output.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
