"""The six metrics of the ZLPR paper against scikit-learn and torchmetrics, and metrics at k over a million labels.

    python -m benchmarks.metrics --device cpu --threads 2 --output page.md

Every contender runs in a process of its own on the same inputs, so that peak memory is its own. Values are compared before
a time is printed; a disagreement ends the run.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

SIX = ["SubACC", "MLC-F1", "micro-F1", "macro-F1", "AvgPrec", "RankLoss"]
AT_K = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5"]
CONTENDERS = ("manyhot", "scikit-learn", "torchmetrics")
# Beside SciPy 1.18 scikit-learn adds up AvgPrec in the float32 of the scores; torchmetrics adds up in float32 and ranks
# sigmoids, which can tie where logits do not.
TOLERANCE = {"scikit-learn": 1e-5, "torchmetrics": 2e-4}


def make_inputs(rows, labels, positives=5):
    """Scores [R, L] and bool labels with five positives a row that stand three higher; made without large temporaries."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(rows, labels, generator=generator).sub_(2.0)
    first = torch.randint(labels, (rows, 1), generator=generator)
    step = torch.randint(1, labels // positives, (rows, 1), generator=generator)
    chosen = (first + step * torch.arange(positives)) % labels
    truth = torch.zeros(rows, labels, dtype=torch.bool).scatter_(1, chosen, True)
    scores.scatter_add_(1, chosen, torch.full(chosen.shape, 3.0))
    return scores, truth


def manyhot_contender(scores, truth):
    from manyhot.metrics.running import Metrics

    metrics = Metrics(SIX, num_labels=scores.shape[1]).to(scores.device)

    def run(part=slice(None)):
        metrics.reset()
        metrics.update(scores[part], truth[part])
        return metrics.compute()

    return run


def sklearn_contender(scores, truth):
    from sklearn import metrics as reference

    y, s = truth.cpu().numpy(), scores.cpu().numpy()

    def run(part=slice(None)):
        y_true, y_score = y[part], s[part]
        p = y_score > 0
        return {
            "SubACC": reference.accuracy_score(y_true, p),
            "MLC-F1": reference.f1_score(y_true, p, average="samples", zero_division=1),
            "micro-F1": reference.f1_score(y_true, p, average="micro", zero_division=0),
            "macro-F1": reference.f1_score(y_true, p, average="macro", zero_division=0),
            "AvgPrec": reference.label_ranking_average_precision_score(y_true, y_score),
            "RankLoss": reference.label_ranking_loss(y_true, y_score),
        }

    return run


def torchmetrics_contender(scores, truth):
    from torchmetrics import MetricCollection, classification

    probs, target = scores.sigmoid(), truth.long()
    settings = {"num_labels": scores.shape[1], "validate_args": False}
    flat = MetricCollection(
        {
            "SubACC": classification.MultilabelExactMatch(**settings),
            "micro-F1": classification.MultilabelF1Score(average="micro", **settings),
            "macro-F1": classification.MultilabelF1Score(average="macro", **settings),
            "AvgPrec": classification.MultilabelRankingAveragePrecision(**settings),
            "RankLoss": classification.MultilabelRankingLoss(**settings),
        }
    ).to(scores.device)
    rowwise = classification.MultilabelF1Score(average="micro", multidim_average="samplewise", **settings).to(scores.device)

    def run(part=slice(None)):
        flat.reset()
        rowwise.reset()
        flat.update(probs[part], target[part])
        rowwise.update(probs[part].unsqueeze(-1), target[part].unsqueeze(-1))
        values = {name: value.item() for name, value in flat.compute().items()}
        return values | {"MLC-F1": rowwise.compute().double().mean().item()}

    return run


MAKERS = dict(zip(CONTENDERS, (manyhot_contender, sklearn_contender, torchmetrics_contender), strict=True))


def worker(name, shape, device, threads):
    """One contender: seconds, peak memory above the inputs, values, as JSON."""
    torch.set_num_threads(threads)
    on = torch.device("cpu" if name == "scikit-learn" else device)
    scores, truth = make_inputs(*shape)
    scores, truth = scores.to(on), truth.to(on)
    run = MAKERS[name](scores, truth)
    run(slice(0, 8))
    if on.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds = []
    for _ in range(5 if name == "manyhot" else 1):
        start = time.perf_counter()
        values = run()
        seconds.append(time.perf_counter() - start)
    cuda = on.type == "cuda"
    after = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": statistics.median(seconds), "bytes": after - before, "values": values}


def worker_at_k(device, threads, labels=1_000_000, rows=1024, batches=30):
    """Milliseconds a batch of metrics at k from lists of the best, with the values of one batch worked out by hand."""
    from manyhot import SparseLabels
    from manyhot.metrics.at_k import label_propensities
    from manyhot.metrics.running import Metrics
    from manyhot.scores.top import TopScores

    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    frequency = torch.randint(1, 1000, (labels,), generator=generator)
    propensities = label_propensities(frequency, 3_000_000)
    made = []
    for _ in range(batches):
        truth = torch.randint(labels // 8, (rows, 5), generator=generator) * 8 + torch.randint(
            8, (rows, 5), generator=generator
        )
        lists = [sorted(set(row)) for row in truth.tolist()]
        guess = torch.where(torch.rand(rows, 5, generator=generator) < 0.5, truth, (truth + 1) % labels)
        indices = torch.cat([guess, torch.arange(5).expand(rows, 5) + labels - 5], dim=1)
        values = torch.randn(rows, 10, generator=generator).sort(dim=1, descending=True).values
        made.append((TopScores(values, indices, labels), SparseLabels.from_lists(lists, num_labels=labels), lists))
    check_at_k(made[0], propensities, Metrics(AT_K, num_labels=labels, propensities=propensities))
    metrics = Metrics(AT_K, num_labels=labels, propensities=propensities).to(device)
    inputs = [(top.to(device), truth.to(device)) for top, truth, _ in made]
    cuda = torch.device(device).type == "cuda"
    metrics.update(*inputs[0])
    times = []
    for top, truth in inputs:
        start = time.perf_counter()
        metrics.update(top, truth)
        if cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return {"milliseconds": statistics.median(times), "values": metrics.compute()}


def check_at_k(batch, propensities, metrics):
    top, truth, lists = batch
    metrics.update(top, truth)
    found, worth = metrics.compute(), (1 / propensities).tolist()
    hits = dict.fromkeys((1, 3, 5), 0.0)
    gained = best = 0.0
    for order, labels in zip(top.indices.tolist(), lists, strict=True):
        for k in hits:
            hits[k] += len(set(order[:k]) & set(labels)) / k / len(lists)
        gained += sum(worth[label] for label in order[:5] if label in labels)
        best += sum(sorted((worth[label] for label in labels), reverse=True)[:5])
    expected = {f"P@{k}": value for k, value in hits.items()} | {"PSP@5": gained / best}
    for name, value in expected.items():
        if abs(found[name] - value) > 1e-9:
            raise SystemExit(f"{name} is {found[name]}, by hand {value}: no times are printed")


def in_process(*arguments):
    """Run this file as a worker and read its JSON."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.metrics", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def check_values(found):
    """All contenders must agree with manyhot."""
    for name, tolerance in TOLERANCE.items():
        for metric, value in found[name]["values"].items():
            ours = found["manyhot"]["values"][metric]
            if not abs(ours - value) <= tolerance * max(1.0, abs(value)):
                raise SystemExit(f"{metric} is {ours} here and {value} by {name}: no times are printed")


def six_table(shape, device, threads):
    rows, labels = shape
    shared = ["--device", device, "--threads", str(threads), "--shape", f"{rows}x{labels}"]
    found = {name: in_process("--worker", name, *shared) for name in CONTENDERS}
    check_values(found)
    ours = found["manyhot"]
    lines = [
        f"## {rows:,} rows x {labels:,} labels, 5 positives a row",
        "",
        "| | seconds | times as long | peak memory above inputs, MB | times as much |",
        "|---|---|---|---|---|",
    ]
    for name in CONTENDERS:
        each = found[name]
        where = " (CPU)" if name == "scikit-learn" and device != "cpu" else ""
        memory = each["bytes"] / 2**20
        more = "" if where else f"{memory / max(ours['bytes'] / 2**20, 1):.1f}"
        ratio = each["seconds"] / ours["seconds"]
        lines.append(f"| {name}{where} | {each['seconds']:.4f} | {ratio:.1f} | {memory:.0f} | {more} |")
    values = ", ".join(f"{name} {ours['values'][name]:.6f}" for name in SIX)
    return [*lines, "", f"Values, on which all agree: {values}.", ""]


def hardware(device):
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    gpu = f", {torch.cuda.get_device_name()}" if torch.device(device).type == "cuda" else ""
    return f"{cpu}, {os.cpu_count()} cores{gpu}"


def page(options):
    versions = {name: importlib.metadata.version(name) for name in ("torch", "torchmetrics", "scikit-learn", "numpy")}
    lines = [
        "# Metrics: the six of the ZLPR paper, and metrics at k",
        "",
        f"- Hardware: {hardware(options.device)}; {options.threads} threads.",
        f"- Versions: Python {platform.python_version()}, {', '.join(f'{name} {v}' for name, v in versions.items())}.",
        f"- Command: `python -m benchmarks.metrics --device {options.device} --threads {options.threads}`.",
        f"- Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}.",
        f"- Metrics: {', '.join(SIX)}.",
        "- Each contender in a process of its own; manyhot is the median of five runs, the others are one run, all after a",
        "  warm-up on eight rows. torchmetrics gets ready-made probabilities and does not validate.",
        "",
    ]
    for shape in options.shapes:
        lines += six_table(shape, options.device, options.threads)
    found = in_process("--worker", "at-k", "--device", options.device, "--threads", str(options.threads))
    return [
        *lines,
        "## 1,000,000 labels, batches of 1,024 rows, lists of the 10 best, sparse labels",
        "",
        f"{', '.join(AT_K)} together: {found['milliseconds']:.2f} ms a batch (median of 30); nothing of size rows x labels",
        "is made.",
        "",
    ]


def shape_of(text):
    rows, labels = text.split("x")
    return int(rows), int(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", type=shape_of, nargs="+", default=[(20_000, 1_000), (2_000, 30_000)], metavar="RxL")
    parser.add_argument("--output", type=Path, help="write the page here instead of printing it")
    parser.add_argument("--worker", choices=(*CONTENDERS, "at-k"), help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=shape_of, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker == "at-k":
        print(json.dumps(worker_at_k(options.device, options.threads)))
    elif options.worker:
        print(json.dumps(worker(options.worker, options.shape, options.device, options.threads)))
    elif options.output:
        options.output.write_text("\n".join(page(options)))
    else:
        print("\n".join(page(options)))


if __name__ == "__main__":
    main()
