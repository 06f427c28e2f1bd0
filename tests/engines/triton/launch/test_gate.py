"""The gate of the launch path: every failure leads to the plain form, with one warning, and nothing is launched any more."""

import sys
import warnings

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import bce_loss, focal_loss, pairwise_loss, rdrop_loss  # noqa: F401 - they register their plain forms
from manyhot.engines import plain, registry
from manyhot.engines.native import engine as native_engine
from manyhot.engines.terms import DenseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.launch import direct, gate, launcher
from manyhot.engines.triton.launch.gate import LaunchError, falls_back_to


@pytest.fixture
def fresh_gate(monkeypatch):
    """A gate that has met nothing yet, on a machine with one H200 as it looks from here."""
    monkeypatch.setattr(gate.GATE, "failure", "")
    monkeypatch.setattr(gate.GATE, "warned", False)
    monkeypatch.setattr(gate, "_INTERPRETED", False)
    monkeypatch.setattr(gate, "triton_version", lambda: (3, 6))
    monkeypatch.setattr(gate, "cuda_launch", lambda: print)
    monkeypatch.setattr(gate.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    forget()
    yield monkeypatch
    forget()


def forget():
    gate._refusal_of_host.cache_clear()
    gate._refusal_of_device.cache_clear()


def problem():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 6, generator=generator), DenseTerms(torch.rand(4, 6, generator=generator) < 0.4)


def test_the_gate_is_open_where_all_is_known(fresh_gate):
    assert gate.refusal() == gate.refusal(0) == ""
    assert triton_engine.available(0) == (True, "")


def test_the_version_in_use_here_was_tried():
    if sys.platform == "linux" and gate.importlib.util.find_spec("triton") is not None:
        assert gate.TRIED[0] <= gate.triton_version() <= gate.TRIED[1]


REFUSALS = {
    "not installed": (lambda patch: patch.setattr(gate.importlib.util, "find_spec", lambda _: None), "triton is not installed"),
    "version": (lambda patch: patch.setattr(gate, "triton_version", lambda: (4, 1)), r"triton 4\.1 was never tried"),
    "old version": (lambda patch: patch.setattr(gate, "triton_version", lambda: (3, 5)), r"triton 3\.5 was never tried"),
    "ROCm": (lambda patch: patch.setattr(torch.version, "hip", "6.4"), "built for ROCm"),
    "old device": (lambda patch: patch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5)), r"capability 7\.5"),
    "driver": (lambda patch: patch.setattr(gate, "cuda_launch", lambda: None), "no cuLaunchKernelEx"),
}


@pytest.mark.parametrize("cause", REFUSALS)
def test_a_machine_that_cannot_launch_warns_once_and_serves_by_the_plain_form(fresh_gate, cause):
    break_it, reason = REFUSALS[cause]
    break_it(fresh_gate)
    with pytest.warns(RuntimeWarning, match=reason) as heard:
        assert not any(registry.is_there("triton", 0) for _ in range(5))
    assert len(heard) == 1
    assert not triton_engine.available(0)[0]


def test_scores_on_the_cpu_do_not_warn(fresh_gate):
    fresh_gate.setattr(torch.version, "hip", "6.4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not registry.is_there("triton")
        assert registry.is_there("native") in (True, False)


class Library:
    """A driver that has no function of any name, as ctypes tells it."""

    def __getitem__(self, name):
        raise AttributeError(f"undefined symbol: {name}")


def missing_library(_):
    raise OSError("libcuda.so.1: cannot open shared object file")


@pytest.mark.parametrize("load", [lambda _: Library(), missing_library], ids=["no function", "no driver"])
def test_a_driver_without_the_function_is_noticed(monkeypatch, load):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(direct.ctypes, "CDLL", load)
    direct.cuda_launch.cache_clear()
    try:
        assert direct.cuda_launch() is None
    finally:
        direct.cuda_launch.cache_clear()


class Broken:
    """A kernel that fails to compile, or to launch."""

    def __init__(self, error):
        self.error = error

    def __getitem__(self, grid):
        def run(*_, **__):
            raise self.error

        return run


@pytest.mark.parametrize(
    "error", [TypeError("compile: unsupported"), RuntimeError("Triton Error [CUDA]: invalid"), KeyError("x")]
)
def test_whatever_a_launch_raises_is_a_launch_error(error):
    launch = launcher.Launcher(Broken(error), (), 4)
    with pytest.raises(LaunchError) as raised:
        launch(1, torch.zeros(3), (), ())
    assert raised.value.__cause__ is error


def test_internals_that_moved_are_a_launch_error(monkeypatch):
    def gone():
        raise AttributeError("module 'triton.knobs' has no attribute 'runtime'")

    monkeypatch.setattr(launcher, "_hooked", gone)
    with pytest.raises(LaunchError):
        launcher.stream_for(0)


FUNCTIONS = {
    "sides": lambda engine, x, terms: [side.value for side in engine.sides(x, terms)],
    "fused": lambda engine, x, terms: engine.fused(x, terms, "split", 0.5, 0.25),
    "joint": lambda engine, x, terms: engine.fused(x, terms, "joint", torch.rand(4), torch.rand(4)),
    "whole": lambda engine, x, terms: engine.fused(x, terms, "split", 0.0, 0.25, whole=True),
    "bce": lambda engine, x, terms: engine.labelwise(x, terms, "bce", row_scale=0.25, whole=True),
    "focal": lambda engine, x, terms: engine.labelwise(x, terms, "focal", gamma_pos=2.0, gamma_neg=2.0),
    "rdrop": lambda engine, x, terms: engine.rdrop(x, x + 1, terms, alpha=2.0),
    "divergence": lambda engine, x, terms: engine.rdrop(x, x + 1, None, terms.labels, link=2.0),
    "total": lambda engine, x, _: engine.total(x[:, 0], 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_whose_launch_fails_gives_the_plain_result(fresh_gate, name):
    calls = []

    def fail(self, programs, x, *_):
        calls.append(programs)
        raise LaunchError("no") from RuntimeError("out of resource: shared memory")

    fresh_gate.setattr(launcher.Launcher, "__call__", fail)
    x, terms = problem()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        with pytest.warns(RuntimeWarning, match="RuntimeError: out of resource: shared memory") as heard:
            got = FUNCTIONS[name](triton_engine, x, terms)
        assert len(heard) == 1
        FUNCTIONS[name](triton_engine, x, terms)
        assert len(calls) == 1
        torch.manual_seed(1)
        if not native_engine.available()[0]:
            pytest.skip("the native engine, which says what is right, is not built")
        wanted = FUNCTIONS[name](native_engine, x, terms)
    for one, two in zip(_flat(got), _flat(wanted), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
    assert not triton_engine.available(0)[0]
    assert "shared memory" in registry.available_engines()["triton"]


def _flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [leaf for part in result if part is not None for leaf in _flat(part)]


def test_a_gradient_and_a_scaling_whose_launch_fails_give_the_plain_result(fresh_gate):
    def fail(self, *_):
        raise LaunchError("no") from RuntimeError("no kernel image")

    fresh_gate.setattr(launcher.Launcher, "__call__", fail)
    x, terms = problem()
    pos, neg = plain.sides(x, terms)
    pulls = torch.rand(4), torch.rand(4)
    with pytest.warns(RuntimeWarning, match="no kernel image") as heard:
        got = triton_engine.gradient(x, terms, pos, neg, *pulls)
    assert len(heard) == 1
    torch.testing.assert_close(got, terms.gradient(x, pos, neg, *pulls))
    grad = torch.ones(1 << 22)
    assert triton_engine.scale_(grad, torch.tensor(3.0)) is grad
    assert grad.eq(3).all()


def test_errors_that_are_no_launch_errors_are_the_callers():
    @falls_back_to(lambda: "plain")
    def run():
        raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        run()


def test_a_kernel_file_that_cannot_be_imported_leads_to_the_plain_form(fresh_gate):
    @falls_back_to(lambda: "plain")
    def run():
        raise ImportError("cannot import name 'language' from 'triton'")

    with pytest.warns(RuntimeWarning, match="cannot import name") as heard:
        assert [run(), run()] == ["plain", "plain"]
    assert len(heard) == 1


WHOLE_LOSS = """
import sys, warnings
import torch
sys.path.insert(0, sys.argv[1])
from manyhot import SpanLabels, SpanScores, bce_loss, rdrop_loss, zlpr_loss
from manyhot.engines.triton.launch import gate, launcher
def fail(*_, **__):
    raise RuntimeError("ptxas died")
launcher.Launcher._launch_with_triton = fail
x, labels = torch.randn(5, 7), torch.rand(5, 7) < 0.4
q, k = torch.randn(2, 2, 3, 6, 4).unbind()
spans = SpanLabels.from_lists([[(0, 1, 3)], [(2, 0, 0)]], num_types=3, num_tokens=6)
cases = [
    lambda s, e: zlpr_loss(s, labels, engine=e),
    lambda s, e: zlpr_loss(s, labels, reduction="none", engine=e).sum(),
    lambda s, e: bce_loss(s, labels, engine=e),
    lambda s, e: rdrop_loss(s, s.detach() + 1, labels, engine=e),
    lambda s, e: zlpr_loss(SpanScores(s.sum() * q, k, lengths=[6, 4]), spans, engine=e),
    lambda s, e: zlpr_loss(SpanScores(s.sum() * q, k, lengths=[6, 4]), spans, reduction="none", engine=e).sum(),
]
for loss in cases:
    gate.GATE.failure, gate.GATE.warned = "", False
    results = []
    for engine in ("triton", "torch"):
        s = x.clone().requires_grad_()
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            value = loss(s, engine)
            value.backward()
        assert len([w for w in heard if "ptxas died" in str(w.message)]) == (engine == "triton"), heard
        results.append((value.detach(), s.grad))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
print("checked")
"""


def test_whole_losses_survive_a_compiler_that_fails():
    check_interpreted(WHOLE_LOSS, fails=True)
