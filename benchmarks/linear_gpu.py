"""A linear head on a CUDA device, forward and backward: LinearScores beside its matrix products and dense logits.

    python -m benchmarks.linear_gpu [--output PAGE.md] [--cases 0 1]

Device times are medians over replays of a captured CUDA graph of one call and its backward. The floor is the time of the three
(scores kept) or four (made again) products alone: at 790 TFLOP/s or the speed of a copy, whichever takes longer, and as cuBLAS
takes it in the same run. Gradients are compared with the plain engine in float64.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import math
import statistics
import sys
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear

from benchmarks.gpu_engine import copy_bandwidth, table
from manyhot import LinearHead, LinearScores, SparseLabels, decoupled_softmax_loss, zlpr_loss

CASES = [(131_072, 512), (1_310_720, 512), (2_812_281, 128), (2_812_281, 1_024)]
SIZE, POSITIVES, RATE, REPEATS = 768, 5, 790e12, 15


def problem(num_labels, rows):
    """Hidden, weight and bias in bfloat16 (the bias in float32), and index lists."""
    torch.manual_seed(0)
    hidden = torch.randn(rows, SIZE, device="cuda", dtype=torch.bfloat16).requires_grad_()
    weight = torch.empty(num_labels, SIZE, device="cuda", dtype=torch.bfloat16).normal_(std=SIZE**-0.5).requires_grad_()
    bias = torch.full((num_labels,), -math.log(num_labels), device="cuda").requires_grad_()
    chosen = torch.rand(rows, POSITIVES).mul_(num_labels // POSITIVES).long() + torch.arange(POSITIVES) * (
        num_labels // POSITIVES
    )
    return hidden, weight, bias, SparseLabels.from_lists(chosen.tolist(), num_labels=num_labels).to("cuda")


def milliseconds(function, *, captured=True, repeats=REPEATS):
    """Device time of one call."""
    for _ in range(2 if repeats > 1 else 1):
        function()
    run = function
    if captured:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function()
        run = graph.replay
        run()
    taken = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken)


def products(hidden, weight):
    """Milliseconds of the three products alone by cuBLAS: scores, gradient of hidden, gradient of the weight."""
    even = weight.shape[0] // 512 * 512
    hidden, part = hidden.detach(), weight.detach()[:even]
    scores, out = hidden @ part.mT, torch.empty_like(part)
    total = torch.zeros(hidden.shape, device="cuda")
    calls = [
        lambda: torch.mm(hidden, part.mT, out=scores),
        lambda: torch.addmm(total, scores, part, out_dtype=torch.float32, out=total),
        lambda: torch.mm(scores.mT, hidden, out=out),
    ]
    return [milliseconds(call) * weight.shape[0] / even for call in calls]


def peak(function, inputs):
    """MiB at the peak of a call, beyond what was there and the gradients."""
    function()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    function()
    gradients = sum(part.numel() * part.element_size() for part in inputs)
    return (torch.cuda.max_memory_allocated() - before - gradients) / 2**20


def errors(hidden, weight, bias, labels):
    """Largest error of the gradients of hidden and weight, relative to their largest entry: kept, made again, dense."""
    exact = [part.detach().double().requires_grad_() for part in (hidden, weight, bias)]
    wanted = torch.autograd.grad(zlpr_loss(LinearScores(*exact), labels, engine="torch"), exact[:2])
    del exact
    found = []
    calls = [lambda: LinearScores(hidden, weight, bias), lambda: LinearScores(hidden, weight, bias, memory_budget=0)]
    for make in (*calls, lambda: linear(hidden, weight, bias.to(weight.dtype))):
        made = torch.autograd.grad(zlpr_loss(make(), labels), (hidden, weight))
        found.append(max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(made, wanted, strict=True)))
        del made
    return found


def ours(inputs, labels, **settings):
    hidden, weight, bias = inputs
    wanted = [part for part in inputs if part is not None]

    def run():
        return torch.autograd.grad(zlpr_loss(LinearScores(hidden, weight, bias, **settings), labels), wanted)

    return run, wanted


def fused(num_labels, hidden, labels, kind, budget):
    """A head with a fused update: milliseconds and MiB beside the weights."""
    with torch.device("cuda"):
        head = LinearHead(SIZE, num_labels, dtype=torch.bfloat16, update=kind, lr=0.01, weight_decay=1e-4, memory_budget=budget)

    def run():
        hidden.grad = None
        zlpr_loss(head(hidden), labels).backward()

    taken, extra = milliseconds(run), peak(run, [hidden])
    torch.cuda.synchronize()
    return f"{taken:.2f}, {extra:,.0f} MiB"


def others(num_labels, inputs, labels, compiled):
    """Milliseconds of what else there is, by name; a failure is named."""
    hidden, weight, _ = inputs
    dense = labels.dense(torch.bfloat16) if num_labels * hidden.shape[0] <= 2 << 30 else None
    parts = (hidden, weight)
    calls = {"dense + zlpr_loss": lambda: zlpr_loss(linear(hidden, weight), labels)}
    if dense is not None:
        calls["dense + BCE eager"] = lambda: binary_cross_entropy_with_logits(linear(hidden, weight), dense)
        calls["dense + BCE compiled"] = lambda: compiled(hidden, weight, dense)
    found = {}
    for name, call in calls.items():
        try:
            found[name] = milliseconds(lambda: torch.autograd.grad(call(), parts), repeats=5)  # noqa: B023
        except Exception as error:
            found[name] = f"{type(error).__name__}"
        torch.cuda.empty_cache()
    if num_labels * hidden.shape[0] < 1e9:
        plain = lambda: torch.autograd.grad(zlpr_loss(LinearScores(hidden, weight), labels, engine="torch"), parts)  # noqa: E731
        found["plain engine"] = milliseconds(plain, captured=False, repeats=1)
    return found


def softmaxes(num_labels, hidden, weight, labels):
    """Softmax with one label a row: ``[(name, milliseconds, MiB, error)]`` of ours, of Liger and of torch where they are there.

    Decoupled softmax is that loss where a row has one label. Liger reads a number back, so it is timed without a graph.
    """
    first = labels.indices.view(-1, POSITIVES)[:, 0].contiguous()
    single = SparseLabels(first, torch.arange(len(first) + 1, device="cuda"), num_labels)
    calls = {"ours, kept": lambda: decoupled_softmax_loss(LinearScores(hidden, weight), single)}
    calls["ours, made again"] = lambda: decoupled_softmax_loss(LinearScores(hidden, weight, memory_budget=0), single)
    calls["dense logits"] = lambda: cross_entropy(linear(hidden, weight), first)
    softmax = getattr(torch.nn.functional, "linear_cross_entropy", None)
    if softmax is not None:
        calls["torch linear_cross_entropy"] = lambda: softmax(hidden, weight, first)
    if importlib.util.find_spec("liger_kernel"):
        calls["Liger"] = lambda: _liger(hidden, weight, first)
    exact = [part.detach().double().requires_grad_() for part in (hidden, weight)]
    wanted = [part.float() for part in torch.autograd.grad(cross_entropy(linear(*exact), first), exact)]
    del exact
    found, parts = [], (hidden, weight)
    for name, call in calls.items():
        torch.cuda.empty_cache()
        try:
            run = lambda: torch.autograd.grad(call(), parts)  # noqa: B023, E731
            taken = milliseconds(run, captured=name != "Liger", repeats=1 if name == "Liger" else 5)
            wrong = max(((a.float() - b).abs().max() / b.abs().max()).item() for a, b in zip(run(), wanted, strict=True))
            found.append([name, f"{taken:.2f}", f"{peak(run, parts):,.0f}", f"{wrong:.1e}"])
        except Exception as error:
            found.append([name, type(error).__name__, "-", "-"])
    return [[f"{num_labels:,} x {hidden.shape[0]:,}", *each] for each in found]


def _liger(hidden, weight, target):
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    found = LigerFusedLinearCrossEntropyFunction.apply(hidden, weight, target)
    return found[0] if isinstance(found, tuple) else found


def measure(num_labels, rows, bandwidth, compiled):
    hidden, weight, bias, labels = problem(num_labels, rows)
    flops, read = 2 * rows * num_labels * SIZE / RATE * 1e3, num_labels * SIZE * 2 / bandwidth * 1e3
    scores, by_hidden, by_weight = products(hidden, weight)
    alone = {"kept": scores + by_hidden + by_weight, "made again": 2 * scores + by_hidden + by_weight}
    row = [f"{num_labels:,} x {rows:,}"]
    for name, count, budget in (("kept", 3, num_labels * rows * 2), ("made again", 4, 0)):
        floor = count * max(flops, read)
        run, wanted = ours((hidden, weight, None), labels, memory_budget=budget)
        taken, eager = milliseconds(run), milliseconds(run, captured=False)
        biased = milliseconds(ours((hidden, weight, bias), labels, memory_budget=budget)[0])
        row += [f"{floor:.2f}", f"{alone[name]:.2f}", f"{taken:.3f} ({taken / floor:.2f}, {taken / alone[name]:.2f})"]
        row += [f"{eager:.2f}", f"{biased:.2f}", f"{peak(run, wanted):,.0f}"]
    found = others(num_labels, (hidden, weight, bias), labels, compiled)
    error = errors(hidden, weight, bias, labels) if num_labels < 2_000_000 or rows < 500 else None
    torch.cuda.empty_cache()
    single = softmaxes(num_labels, hidden, weight, labels) if num_labels * rows < 1e9 else []
    weight_size = weight.numel() * 2 / 2**20
    del weight, bias
    torch.cuda.empty_cache()
    steps = [f"{weight_size:,.0f}"]
    for kind, budget in (("sgd", None), ("sgd", 0), ("adagrad", 0)):
        steps.append(fused(num_labels, hidden, labels, kind, budget))
        torch.cuda.empty_cache()
    return row, steps, found, error, single


def version(package):
    """The version of an installed package, or that there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed there"


def page(found, bandwidth):
    import triton

    head = ["labels x rows"]
    for name in ("kept", "again"):
        head += [f"floor, {name}", "products alone", f"ours, {name}", "eager", "with bias", "MiB"]
    names = list(dict.fromkeys(name for _, _, other, *_ in found for name in other))
    rows = [row for row, *_ in found]
    steps = [[row[0], *step] for row, step, *_ in found]
    beside = [
        [row[0], *(f"{other[name]:.2f}" if isinstance(other.get(name), float) else str(other.get(name, "-")) for name in names)]
        for row, _, other, *_ in found
    ]
    wrong = [[row[0], *(f"{value:.1e}" for value in error)] for row, _, _, error, _ in found if error]
    single = [each for *_, own in found for each in own]
    absent = "" if hasattr(torch.nn.functional, "linear_cross_entropy") else " This torch has no `linear_cross_entropy`."
    update = ["labels x rows", "weights, MiB", "SGD, kept", "SGD, made again", "AdaGrad, made again"]
    return f"""# A linear head on {torch.cuda.get_device_name()}

{datetime.date.today()}, torch {torch.__version__}, triton {triton.__version__}, copy {bandwidth / 1e12:.2f} TB/s.
Command: `python -m benchmarks.linear_gpu`. Hidden size {SIZE}, bfloat16, {POSITIVES} positives a row as index lists,
`zlpr_loss(LinearScores(hidden, weight), labels)` and its gradients by hidden and weight.

Milliseconds on the device, medians over {REPEATS} replays of a captured graph. The floor is the three products (scores kept)
or four (made again) at {RATE / 1e12:.0f} TFLOP/s, or at the speed of a copy of the weights where that takes longer; "products
alone" are the same products by cuBLAS in this run. In brackets ours over the floor, and over the products alone. "Eager" is the
same call without a graph, where the host may be what one waits for; "with bias" has a bias and its gradient too. MiB is the
peak beyond inputs and gradients.

{table(head, rows)}

One step of `LinearHead` in bfloat16 with the update inside backward and stochastic rounding, with bias: milliseconds, and the
peak beyond weights, their state and the gradient of hidden.

{table(update, steps)}

Beside, milliseconds (without bias; "-" was not run). BCE has dense labels in bfloat16.

{table(["labels x rows", *names], beside)}

Largest error of the gradients of hidden and weight against float64, relative to their largest entry, with bias:

{table(["labels x rows", "ours, kept", "ours, made again", "dense logits in bfloat16"], wrong)}

Softmax and cross-entropy with one label a row, without bias: ours is `decoupled_softmax_loss(LinearScores(...))`, which is that
loss for one label. MiB beyond inputs and gradients; the error as above.{absent} Liger {version("liger_kernel")}: its fused
linear cross-entropy, timed without a graph, because it reads a number back.

{table(["labels x rows", "by", "milliseconds", "MiB", "largest error"], single)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--cases", type=int, nargs="*", default=range(len(CASES)), help="numbers of the cases to run")
    settings = parser.parse_args()
    compiled = torch.compile(lambda hidden, weight, labels: binary_cross_entropy_with_logits(linear(hidden, weight), labels))
    bandwidth, found = copy_bandwidth(), []
    for number in settings.cases:
        found.append(measure(*CASES[number], bandwidth, compiled))
        print(found[-1], file=sys.stderr, flush=True)
        torch.cuda.empty_cache()
        if settings.output:
            settings.output.write_text(page(found, bandwidth))
    if not settings.output:
        print(page(found, bandwidth))


if __name__ == "__main__":
    main()
