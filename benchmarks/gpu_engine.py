"""The loss on a CUDA device: forward and backward beside BCE and the public recipe, eager and compiled.

    python -m benchmarks.gpu_engine [--output PAGE.md] [--stages pairs few]

Device times are medians of `triton.testing.do_bench` over the replay of a captured CUDA graph of a few calls of the public
function and its backward, so that no contender waits for Python, nor for the start of a graph; the host's time to issue a
call is measured by itself. The floor is the bytes that any implementation must move (read logits, read labels, write the
gradient) over the copy bandwidth measured in the same run. Nothing is timed whose gradient disagrees with float64. Beside the
page the figures are left as JSON, from which `python -m benchmarks.loss_figure` draws; a second run with ``--stages`` adds
tables to a page whose JSON is there.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.few_gpu import HEAD as FEW_HEAD
from benchmarks.few_gpu import lines as few_lines
from manyhot import SparseLabels, asymmetric_loss, bce_loss, focal_loss, prediction_divergence, rdrop_loss, zlpr_loss
from manyhot.engines.terms import DenseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton import replay as triton_replay

SHAPES = [(65536, 20), (65536, 128), (65536, 1024), (16384, 4096), (8192, 8192), (8192, 16384), (4096, 32768), (1024, 131072)]
SHAPES += [(128, 1048576)]
TINY = [(256, 80), (65536, 20), (65536, 128)]
PAIRS = [(65536, 128), (16384, 4096), (16384, 4271), (4096, 32768)]
BASELINES = {"BCE": bce_loss, "focal": focal_loss, "asymmetric": asymmetric_loss}
ODD = [(65536, 600), (16384, 4271), (16384, 4272), (8192, 10000), (4096, 20001), (1024, 100003), (8, 10_000_000)]
TYPES = (torch.bfloat16, torch.float32, torch.float16)
# Float32 and float16 are tried at fewer sizes, so that the page takes about a minute and a half.
SINGLE_SHAPES = [(65536, 128), (16384, 4096), (4096, 32768), (128, 1048576)]
HALF_SHAPES = [(65536, 128), (16384, 4096), (4096, 32768), (1024, 131072)]
OF_TYPE = {torch.bfloat16: SHAPES, torch.float32: SINGLE_SHAPES, torch.float16: HALF_SHAPES}
LOSS_SCALE = 65536.0
# The tables of the page, in the order in which they are measured.
PARTS = ["found", "odd", "tiny", "pairs", "few", "baselines"]
POSITIVES = 5
CALLS = 8


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
    """The gradient; in float16 times the loss scale that torch begins with, or half of it where the loss cannot hold that."""
    factor = None
    if logits.dtype == torch.float16:
        factor = torch.full_like(loss, 32768.0 if loss.dtype == torch.float16 else LOSS_SCALE)
    (grad,) = torch.autograd.grad(loss, logits, factor)
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
    wanted = wanted * (LOSS_SCALE if logits.dtype == torch.float16 else 1.0)
    return ((grad[:rows].double() - wanted).abs().max() / wanted.abs().max()).item()


def contenders(logits, labels, compiled):
    """Calls by name: ours on three kinds of labels, then the others."""
    lists, floats = SparseLabels.from_dense(labels), labels.to(logits.dtype)
    return {
        "dense": lambda: backward(zlpr_loss(logits, labels), logits),
        "lists": lambda: backward(zlpr_loss(logits, lists), logits),
        "soft": lambda: backward(zlpr_loss(logits, floats), logits),
        "BCE eager": lambda: backward(binary_cross_entropy_with_logits(logits, floats), logits),
        "recipe eager": lambda: backward(recipe(logits, floats), logits),
        "BCE compiled": lambda: backward(compiled[0](logits, floats), logits),
        "recipe compiled": lambda: backward(compiled[1](logits, floats), logits),
    }


def compile_others():
    torch._dynamo.config.recompile_limit = 64
    return [torch.compile(call, dynamic=False) for call in (binary_cross_entropy_with_logits, recipe, rdrop_recipe)]


def measure(rows, num_labels, dtype, bandwidth, compiled):
    """Everything about one shape and type, in one dictionary; times in milliseconds."""
    logits, labels = problem(rows, num_labels, dtype)
    size = rows * num_labels * logits.element_size()
    moved = {"dense": 2 * size + rows * num_labels, "lists": 2 * size, "soft": 3 * size}
    found = {"rows": rows, "labels": num_labels, "type": str(dtype)[6:]}
    found["floor"] = {kind: count / bandwidth * 1e3 for kind, count in moved.items()}
    lists = SparseLabels.from_dense(labels)
    found["error"] = max(error(backward(zlpr_loss(logits, given), logits), logits, labels) for given in (labels, lists))
    found["plain_error"] = error(backward(zlpr_loss(logits, labels, engine="torch"), logits), logits, labels)
    if found["error"] > max(3 * found["plain_error"], 1e-5):
        return found
    found["time"] = {name: graph_milliseconds(call) for name, call in contenders(logits, labels, compiled).items()}
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    backward(zlpr_loss(logits, labels), logits)
    found["peak"] = (torch.cuda.max_memory_allocated() - before) / size
    return found


def cells(found):
    """A row of the table."""
    name = [f"{found['rows']:,} x {found['labels']:,}", found["type"]]
    if "time" not in found:
        return [*name, f"error {found['error']:.1e} against {found['plain_error']:.1e}: not timed"]
    times, floors = found["time"], found["floor"]
    ours = [f"{times[kind]:.3f} ({times[kind] / floors[kind]:.2f})" for kind in floors]
    others = [f"{value:.3f} ({value / times['dense']:.1f}x)" for other, value in times.items() if other not in floors]
    return [*name, *ours, *others, f"{found['peak']:.2f}", f"{found['error']:.0e} / {found['plain_error']:.0e}"]


OTHERS = ("BCE eager", "BCE compiled", "recipe eager", "recipe compiled")


def faster_cells(found):
    """A row of the table of ratios."""
    times = found["time"]
    ratios = [" / ".join(f"{times[other] / times[kind]:.1f}" for kind in ("dense", "lists")) for other in OTHERS]
    bound = times["recipe compiled"] / found["floor"]["dense"]
    return [f"{found['rows']:,} x {found['labels']:,}", *ratios, f"{bound:.1f}"]


def graph_milliseconds(function):
    """Device time of one call without the host, by replaying a captured graph of some."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            function()
    return milliseconds(graph.replay) / CALLS


def host_microseconds(functions, calls=20, rounds=101):
    """How long the host takes to issue a call of each, by rounds in which they take turns."""
    taken = [[] for _ in functions]
    for _ in range(rounds + 1):
        for function, own in zip(functions, taken, strict=True):
            begun = time.perf_counter()
            for _ in range(calls):
                function()
            own.append((time.perf_counter() - begun) / calls * 1e6)
            torch.cuda.synchronize()
    return [own[1:] for own in taken]


def side_by_side(ours, other):
    """Both medians, and in brackets the median of what ours is of the other, round by round."""
    ratio = statistics.median(mine / its for mine, its in zip(ours, other, strict=True))
    return [f"{statistics.median(ours):.1f} ({ratio:.2f})", f"{statistics.median(other):.1f}"]


def launches(logits, labels):
    """The start of our kernel, as the loss does it for every call like the one before, and of one multiplication; both into
    memory that is there."""
    terms, scale = DenseTerms(labels), 1 / len(logits)
    value, grad, _ = triton_engine.fused(logits, terms, row_scale=scale, whole=True)
    rows = logits.new_empty(len(logits), dtype=torch.float32)

    def ours():
        key, inputs = triton_replay.replay_key(logits, terms, "split", 0.0, scale)
        replay = triton_replay.REPLAYS[key]
        assert replay.run_into(logits, inputs, value, grad, None if replay.total is None else rows)

    return ours, functools.partial(torch.mul, logits, 2, out=grad)


def tiny_rows(compiled):
    for rows, num_labels in TINY:
        logits, labels = problem(rows, num_labels, torch.bfloat16)
        calls = contenders(logits, labels, compiled)
        ours, bce = calls["dense"], calls["BCE eager"]
        one = graph_milliseconds(lambda: logits.detach() * 2)  # noqa: B023
        device = [graph_milliseconds(ours) * 1e3, graph_milliseconds(bce) * 1e3, one * 1e3]
        host = host_microseconds([ours, bce, *launches(logits.detach(), labels)])
        cells = [*(f"{value:.1f}" for value in device), *side_by_side(*host[:2]), *side_by_side(*host[2:])]
        yield [f"{rows:,} x {num_labels:,}", *cells]


def odd_cells(rows, num_labels, bandwidth):
    """A row of the table of label counts that are no power of two: multiples of the floor."""
    row = [f"{rows:,} x {num_labels:,}"]
    for dtype in TYPES[:2]:
        logits, labels = problem(rows, num_labels, dtype)
        for kind, given in (("dense", labels), ("lists", SparseLabels.from_dense(labels))):
            moved = rows * num_labels * (2 * logits.element_size() + (kind == "dense"))
            time_taken = graph_milliseconds(functools.partial(gradients, zlpr_loss, (logits,), given))
            row.append(f"{time_taken:.3f} ({time_taken / (moved / bandwidth * 1e3):.2f})")
    return row


def baseline_error(call, logits, labels, engine, rows=64):
    """As ``error``, of one of the baselines."""
    exact = logits[:rows].detach().double().requires_grad_()
    (wanted,) = gradients(call, (exact,), labels[:rows], engine="torch", reduction="sum")
    (grad,) = gradients(call, (logits,), labels, engine=engine, reduction="sum")
    return ((grad[:rows].double() - wanted).abs().max() / wanted.abs().max()).item()


def baseline_cells(rows, num_labels, dtype, bandwidth, compiled):
    """A row of the table of baselines: ours on uint8 labels, then torch's BCE."""
    logits, labels = problem(rows, num_labels, dtype)
    floor = rows * num_labels * (2 * logits.element_size() + 1) / bandwidth * 1e3
    row = [f"{rows:,} x {num_labels:,}", str(dtype)[6:]]
    for call in BASELINES.values():
        ours, plain = (baseline_error(call, logits, labels, engine) for engine in ("auto", "torch"))
        if ours > max(3 * plain, 1e-5):
            row.append(f"error {ours:.1e} against {plain:.1e}: not timed")
            continue
        taken = graph_milliseconds(functools.partial(gradients, call, (logits,), labels))
        row.append(f"{taken:.3f} ({taken / floor:.2f})")
    floats = labels.to(dtype)
    others = [binary_cross_entropy_with_logits, compiled[0]]
    times = [graph_milliseconds(functools.partial(gradients, other, (logits,), floats)) for other in others]
    return [*row, *(f"{taken:.3f}" for taken in times)]


def rdrop_by_parts(a, b, labels):
    return (zlpr_loss(a, labels) + zlpr_loss(b, labels)) / 2 + prediction_divergence(a, b, engine="torch")


def rdrop_recipe(a, b, labels):
    apart = ((torch.sigmoid(a) - torch.sigmoid(b)) * (a - b)).sum(-1).mean()
    return (recipe(a, labels) + recipe(b, labels)) / 2 + apart


def pair_calls(pair, labels, compiled):
    """R-Drop of two passes: in one read of each, by parts, and the public formula, eager and compiled."""
    floats = labels.to(pair[0].dtype)
    calls = [(rdrop_loss, labels), (rdrop_by_parts, labels), (rdrop_recipe, floats), (compiled[2], floats)]
    return [functools.partial(gradients, call, pair, given) for call, given in calls]


def gradients(call, scores, labels, **settings):
    return torch.autograd.grad(call(*scores, labels, **settings), scores)


def pair_error(pair, labels, engine, rows=64):
    """As ``error``, of both gradients."""
    exact = tuple(x[:rows].detach().double().requires_grad_() for x in pair)
    wanted = gradients(rdrop_loss, exact, labels[:rows], reduction="sum", engine="torch")
    grads = gradients(rdrop_loss, pair, labels, reduction="sum", engine=engine)
    apart = [(grad[:rows].double() - right).abs().max() / right.abs().max() for grad, right in zip(grads, wanted, strict=True)]
    return max(apart).item()


def pair_cells(rows, num_labels, dtype, bandwidth, compiled):
    """A row of the table of R-Drop."""
    a, labels = problem(rows, num_labels, dtype)
    pair = a, (a.detach() + torch.randn_like(a)).requires_grad_()
    name = [f"{rows:,} x {num_labels:,}", str(dtype)[6:]]
    ours, plain = (pair_error(pair, labels, engine) for engine in ("auto", "torch"))
    if ours > max(3 * plain, 1e-5):
        return [*name, f"error {ours:.1e} against {plain:.1e}: not timed"]
    floor = rows * num_labels * (4 * a.element_size() + 1) / bandwidth * 1e3
    first, *others = [graph_milliseconds(call) for call in pair_calls(pair, labels, compiled)]
    times = [f"{first:.3f} ({first / floor:.2f})", *(f"{other:.3f} ({other / first:.1f}x)" for other in others)]
    return [*name, *times, f"{ours:.0e} / {plain:.0e}"]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in rows])


def page(found, few, tiny, odd, pairs, baselines, bandwidth):
    import triton

    head = ["rows x labels", "type", "ours, uint8", "ours, index lists", "ours, soft"]
    head += ["BCE eager", "recipe eager", "BCE compiled", "recipe compiled", "peak / logits", "error ours / plain"]
    small = ["rows x labels", "ours, device us", "BCE eager, device us", "one multiplication"]
    small += ["ours, host us", "BCE, host us", "our launch, host us", "multiplication, host us"]
    long = [each for each in found if each["type"] == "bfloat16" and each["labels"] >= 4096 and "time" in each]
    faster = ["rows x labels", *(f"{other}, uint8 / lists" for other in OTHERS), "recipe compiled / floor"]
    other = ["rows x labels", "bfloat16, uint8", "bfloat16, index lists", "float32, uint8", "float32, index lists"]
    single = ["rows x labels", "type", *BASELINES, "torch's BCE eager", "compiled"]
    two = ["rows x labels", "type", "one read", "by parts", "public formula eager", "compiled", "error ours / plain"]
    return f"""# The loss on {torch.cuda.get_device_name()}

{datetime.date.today()}, torch {torch.__version__}, triton {triton.__version__}, copy {bandwidth / 1e12:.2f} TB/s.
Command: `python -m benchmarks.gpu_engine`. {POSITIVES} positives a row.

Forward and backward in milliseconds on the device: medians over replays of a captured graph of {CALLS} public calls, of one
call; in brackets the multiple of the byte floor (ours) or of our time on uint8 labels (others). "peak / logits" is the extra
peak memory of one call in units of the logits: 1 is the gradient alone. The error is the largest of the gradient against
float64 with uint8 labels and index lists, beside that of the plain form in the same type.

{table(head, [cells(each) for each in found])}

How many times faster than the others ours is in bfloat16, on uint8 labels and on index lists. Reading scores and uint8 labels
and writing the gradient alone, at the speed of a copy, would be as many times faster as the last column says than the recipe
compiled.

{table(faster, map(faster_cells, long))}

Few labels, forward and backward: microseconds on the device over buffers that are in no cache, in brackets the multiple of the
byte floor; then what the host takes to issue a call and its backward.

{table(FEW_HEAD, few)}

Short rows in bfloat16, microseconds: the device by itself, and what the host takes to issue a call and its backward when
nothing is captured or compiled. Where the host takes longer than the device, it is what a user waits for. The last two
columns are the start of the kernel of the loss alone, as every call like the one before does it, and of one multiplication,
both into memory that is there already. Host times are medians of rounds in which the four take turns; in brackets, the median
over the rounds of what ours is of the other.

{table(small, tiny)}

Label counts that are no power of two, milliseconds and the multiple of the byte floor:

{table(other, odd)}

The baselines, which judge every label by itself, on uint8 labels, and torch's BCE on labels in the type of the scores;
forward and backward in milliseconds on the device, in brackets the multiple of the byte floor:

{table(single, baselines)}

R-Drop of two passes, uint8 labels, forward and backward in milliseconds on the device: in brackets the multiple of the byte
floor (read both passes and the labels, write both gradients) or of our time. "By parts" is our loss of either pass and the
divergence in plain torch; the public formula is the recipe of either pass and the same divergence.

{table(two, pairs)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="the page; figures go beside it as JSON")
    parser.add_argument("--stages", nargs="+", choices=PARTS, default=PARTS, help="only these tables")
    parser.add_argument("--warm", type=int, nargs=2, metavar=("K", "N"), help="only compile, every N-th case from the K-th on")
    settings = parser.parse_args()
    compiled = compile_others()
    cases = [(*shape, dtype) for dtype in TYPES for shape in OF_TYPE[dtype]]
    if settings.warm:
        first, step = settings.warm
        for rows, num_labels, dtype in cases[first::step]:
            logits, labels = problem(rows, num_labels, dtype)
            calls = list(contenders(logits, labels, compiled).values())
            if (rows, num_labels) in SHAPES[: len(ODD)] and dtype == TYPES[0]:
                odd_cells(*ODD[SHAPES.index((rows, num_labels))], 1.0)
            for shape in PAIRS:
                if shape[0] == rows and shape[1] // 1000 == num_labels // 1000:
                    given = (logits, labels) if shape[1] == num_labels else problem(*shape, dtype)
                    calls += pair_calls((given[0], given[0].detach().clone().requires_grad_()), given[1], compiled)
                    calls += [functools.partial(baseline_cells, *shape, dtype, 1.0, compiled)]
            for call in calls:
                call()
            torch.cuda.synchronize()
            del logits, labels, calls
            torch.cuda.empty_cache()
        return
    bandwidth = copy_bandwidth()
    parts = {name: [] for name in PARTS} | earlier(settings)
    both = [(*shape, dtype) for dtype in TYPES[:2] for shape in PAIRS]
    stages = {
        "found": (measure(*case, bandwidth, compiled) for case in cases),
        "odd": (odd_cells(*shape, bandwidth) for shape in ODD),
        "tiny": tiny_rows(compiled),
        "pairs": (pair_cells(*case, bandwidth, compiled) for case in both),
        "few": few_lines(bandwidth, compiled[0]),
        "baselines": (baseline_cells(*case, bandwidth, compiled) for case in both),
    }
    for name in settings.stages:
        for line in stages[name]:
            parts[name].append(line)
            print(cells(line) if name == "found" else line, file=sys.stderr, flush=True)
            torch.cuda.empty_cache()
            if settings.output:
                write(settings.output, parts, bandwidth)
    if not settings.output:
        print(page(bandwidth=bandwidth, **parts))


def write(path, parts, bandwidth):
    """The page as far as it is known, and its figures beside it."""
    path.write_text(page(bandwidth=bandwidth, **parts))
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "bandwidth": bandwidth}
    tables = {name: lines for name, lines in parts.items() if name != "found"}
    path.with_suffix(".json").write_text(json.dumps({**about, "cases": parts["found"], **tables}, indent=1))


def earlier(settings):
    """The tables of a run before that this one does not measure."""
    path = settings.output and settings.output.with_suffix(".json")
    if not path or not path.exists():
        return {}
    told = json.loads(path.read_text())
    told["found"] = told.pop("cases")
    return {name: told[name] for name in PARTS if name in told and name not in settings.stages}


if __name__ == "__main__":
    main()
