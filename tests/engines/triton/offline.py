"""Kernels compiled for devices that are not there: what they take of registers, shared memory and stack.

A driver that only names its device stands in for CUDA; Triton compiles for it and loads nothing. Runs in a process of its own.
"""

import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class NamedDevice:
    """As much of Triton's driver as compiling needs."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self):
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, _):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_device_interface(self):
        return torch.cuda

    def get_benchmarker(self):
        return None


# What a program may have on the device: threads, registers of a multiprocessor, bytes of shared memory.
LIMITS = {80: (1024, 65536, 163 << 10), 86: (1024, 65536, 99 << 10), 89: (1024, 65536, 99 << 10)} | {
    capability: (1024, 65536, 227 << 10 if capability < 120 else 99 << 10) for capability in (90, 100, 120)
}


def resources(compiled) -> dict[str, int]:
    """Registers a thread, bytes of stack a thread, bytes of shared memory, threads and identity of a compiled kernel."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(compiled.asm["cubin"])
        text = subprocess.run([tool, "--dump-resource-usage", cubin], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text))
    return {
        "registers": int(found["REG"]),
        "stack": int(found["STACK"]),
        "local": int(found["LOCAL"]),
        "shared": compiled.metadata.shared,
        "threads": 32 * compiled.metadata.num_warps,
        "kernel": int(compiled.hash[:12], 16) if isinstance(compiled.hash, str) else hash(compiled.hash),
    }


def compile_all(capability: int, calls) -> dict[str, dict[str, int]]:
    """What the kernels that ``calls``, functions by name, would launch take on the device."""
    from manyhot.engines.triton import plans
    from manyhot.engines.triton.launch import launcher as launching

    driver.set_active(NamedDevice(capability))
    found: dict[str, dict[str, int]] = {}
    name = [""]

    def compile_only(self, programs, x, others, numbers):
        compiled = self.kernel.warmup(*self.given(x, others), *numbers, *self.constants, grid=(programs,), **self.options)
        found[f"{name[0]} {self.kernel.__name__}"] = resources(compiled)

    launching.Launcher.__call__ = compile_only
    original, together = plans.plan, 84 if capability in (86, 89) else 108
    plans.plan = lambda *sizes, **about: original(*sizes, **(about | {"together": about["together"] or together}))
    for name[0], call in calls.items():
        call()
    return found


SHAPES = ((64, 20), (64, 4096), (512, 20_001), (64, 131_072), (1, 20), (101, 20), (70_001, 20), (101, 4096))


def other_calls():
    """Calls by name that launch what rows of scores with a loss do not: spans, linear scores, lists as bits, ranks, factors."""
    from manyhot import SparseLabels
    from manyhot.engines.linear.problem import LinearProblem
    from manyhot.engines.plain_spans.terms import SpanParts
    from manyhot.engines.terms import DenseTerms, SparseTerms
    from manyhot.engines.triton import columns, counts, engine, listing, pooled, ranks
    from manyhot.engines.triton.linear import backward, best, product, table, updates
    from manyhot.engines.triton.linear import engine as linear
    from manyhot.engines.triton.linear.inputs import KernelInputs, Saved
    from manyhot.engines.triton.spans import engine as spans
    from manyhot.engines.triton.spans.workspace import SpanCells

    def listed(rows, num_labels):
        lists = SparseLabels.from_lists([[0]] * rows, num_labels=num_labels)
        return SparseTerms(lists.indices, lists.offsets)

    def every_span(form):
        q, u = torch.zeros(2, 40, 64, dtype=torch.bfloat16), torch.zeros(2, 5, 40, dtype=torch.bfloat16)
        typed = torch.zeros(2, 5, 40, 64, dtype=torch.bfloat16)
        parts = SpanParts(typed, typed, None, None, 0.125) if form == "typed" else SpanParts(q, q, u, u, 0.125)
        cells = SpanCells(torch.tensor([40, 30]), True, torch.tensor([3, 7]), torch.tensor([0, 1, 2]))
        _, memory = spans.loss(parts, cells, 0.0, "mean")
        spans.loss_gradient(parts, cells, torch.ones(()), memory)

    def every_linear(kept):
        hidden, weight = torch.zeros(64, 128), torch.zeros(4096, 128)
        problem = LinearProblem(hidden, weight, torch.zeros(4096), listed(64, 4096), 2048, kept)
        _, _, memory = linear.losses(problem, "split", 0.0, 1.0 / 64)
        backward.gradient(problem, memory, (torch.ones(64), None), (True, True, True))

    def every_product(mode):
        hidden, weight = torch.zeros(128, 768, dtype=torch.bfloat16), torch.zeros(4096, 768, dtype=torch.bfloat16)
        kept, one = torch.zeros(128, 4096, dtype=torch.bfloat16), torch.ones(())
        problem = LinearProblem(hidden, weight, None, listed(128, 4096), 4096, 4096 if mode == "terms" else 0)
        inputs = KernelInputs(problem)
        # Devices that the kernel does not serve compile it with a tile that fits them.
        if driver.active.get_current_target().arch != 90:
            product.TILES = dict.fromkeys(product.TILES, product.ProductTile(64, 64, 32, 2, 4, 1))
        cuts, scores = inputs.cut(problem), product.listed_scores(problem, inputs)
        if mode == "gradient":
            saved = Saved(torch.zeros(4, 128), None, scores, cuts)
            product.tile_gradient(problem, inputs, saved, (one, None), (0, 4096), kept)
        else:
            product.tile_sums(problem, inputs, cuts, kept)

    def every_update():
        weight, one = torch.zeros(4096, 128, dtype=torch.bfloat16), torch.zeros(())
        about = {"kind": "sgd", "squares": None, "offset": 0, "weight_decay": 0.0, "epsilon": 1e-8}
        update = types.SimpleNamespace(weight=weight, seed=one.long(), step=one.long(), rate=one, **about)
        updates.apply(update, torch.zeros(64, 128, dtype=torch.bfloat16), 0, 512, torch.zeros(64, 512, dtype=torch.bfloat16))

    def every_column():
        wanted = torch.where(torch.arange(columns.FEW_FROM) % 3 > 0, 1, 9).int()
        columns.launch_best(torch.zeros(2, columns.FEW_FROM), wanted, torch.zeros(columns.FEW_FROM + 1, dtype=torch.int64), 9)

    x, scores = torch.zeros(64, 4271, dtype=torch.bfloat16), torch.zeros(64, 4096, dtype=torch.bfloat16)
    lists = SparseLabels.from_lists([[0]] * 64, num_labels=4271)
    return {
        "bits": lambda: engine.labelwise(x, listed(64, 4271), "bce", whole=True),
        "factor": lambda: engine.scale_(torch.zeros(1 << 19), torch.ones(())),
        "long rows": lambda: engine.fused(torch.zeros(2, 2_000_000), DenseTerms(torch.zeros(2, 2_000_000)), whole=True),
        "segments": lambda: engine.fused(
            torch.zeros(2, 2_000_000), DenseTerms(torch.zeros(2, 2_000_000), torch.ones(2, 2_000_000).bool()), whole=True
        ),
        "rows": lambda: engine.sides(x, DenseTerms(x)),
        "ranks": lambda: ranks.launch(x.float(), lists.offsets, torch.zeros(64)),
        "typed spans": lambda: every_span("typed"),
        "shared spans": lambda: every_span("shared"),
        "linear, terms kept": lambda: every_linear(4096),
        "linear, nothing kept": lambda: every_linear(0),
        "tiles, sums": lambda: every_product("sums"),
        "tiles, terms": lambda: every_product("terms"),
        "tiles, gradient": lambda: every_product("gradient"),
        "update": every_update,
        "best labels": lambda: best.leading_labels(scores, None, None, 64, 10, nan_first=True, flags=scores > 0),
        "counts": lambda: counts.launch(x, 0.0, lists=(lists.rows, lists.indices), truth=None, where=None, kinds=(False, True)),
        "counts, dense": lambda: counts.launch(x, 0.0, lists=None, truth=x > 0, where=None, kinds=(False, True)),
        "column best": every_column,
        "segments of labels": lambda: columns.segment_choice(*[torch.zeros(99).double()] * 3, torch.arange(100), 0.1),
        "listing": lambda: listing.launch(x.float(), (0.0, 1.0), 100),
        "lowest score": lambda: pooled.launch_level(torch.zeros(99), torch.zeros(9), 1.0, 0.0, 9, error=False),
        "common cut": lambda: pooled.launch_cut(torch.zeros(99), torch.zeros(9), torch.zeros(2), 9, error=True),
        "table": lambda: table.update(
            torch.zeros(100, 128), torch.zeros(100), torch.zeros(()), torch.zeros(99, dtype=torch.int64),
            torch.zeros(99, dtype=torch.int64), torch.zeros(99), torch.zeros(4, 128)
        ),
        "bag": lambda: table.bag(
            torch.zeros(100, 128), torch.zeros(9, dtype=torch.int64), torch.tensor([0, 5, 9]), torch.zeros(9)
        ),
    }  # fmt: skip


def main() -> None:
    """Print what row kernels take on the device of a capability: all of them, or those that are named."""
    from manyhot import SparseLabels
    from manyhot.engines.terms import DenseTerms, SparseTerms
    from manyhot.engines.triton import engine, half

    calls = {}
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    for rows, num_labels in SHAPES:
        for kind, dtype in kinds.items():
            x = torch.zeros(rows, num_labels, dtype=dtype)
            labels = torch.zeros(rows, num_labels, dtype=torch.uint8)
            lists = SparseLabels.from_lists([[0]] * rows, num_labels=num_labels)
            for form, terms in (("hard", DenseTerms(labels)), ("lists", SparseTerms(lists.indices, lists.offsets))):
                about = f"{rows}x{num_labels} {kind} {form}"
                if kind == "float16":
                    calls[about] = lambda x=x, terms=terms: half.half_fused(x, terms, "split", 0.0, 1.0 / len(x))
                    held = half.Held(x, torch.zeros(()), torch.zeros(()))
                    problem = (x, terms, "split", 0.0, 1.0 / rows)
                    calls[about + " again"] = lambda held=held, problem=problem: half.half_finish(
                        held, torch.zeros(()), lambda: problem
                    )
                else:
                    calls[about] = lambda x=x, terms=terms: engine.fused(x, terms, row_scale=1.0 / len(x), whole=True)
    for kind, dtype in kinds.items():
        x, lists = torch.zeros(64, 4271, dtype=dtype), SparseLabels.from_lists([[0]] * 64, num_labels=4271)
        hard, listed = DenseTerms(torch.zeros(64, 4271, dtype=torch.uint8)), SparseTerms(lists.indices, lists.offsets)
        calls[f"64x4271 {kind} dice"] = lambda x=x, terms=hard: engine.dice(x, terms, squared=False, epsilon=1.0)
        calls[f"64x4271 {kind} rdrop"] = lambda x=x, terms=hard: engine.rdrop(x, x, terms)
        calls[f"64x4271 {kind} focal lists"] = lambda x=x, terms=listed: engine.labelwise(x, terms, "focal", gamma_pos=2.0)
    calls |= other_calls()
    wanted = {name: calls[name] for name in sys.argv[2:]} or calls
    for name, taken in compile_all(int(sys.argv[1]), wanted).items():
        print(name, *[f"{key}={value}" for key, value in taken.items()], flush=True)


if __name__ == "__main__":
    main()
