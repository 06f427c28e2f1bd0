"""Kernels with tensor descriptors started through the driver: their parameters are those that Triton's launcher would pass."""

import ctypes
import struct
from types import SimpleNamespace

import pytest
import torch

from manyhot.engines.triton.launch import described
from manyhot.engines.triton.launch.described import MAP_ALIGNED, MAP_BYTES, Map, described_kernel, maps_of

KINDS = ["tensordesc<bf16[128, 64]>", "tensordesc<bf16[64, 32]>", "*fp32", "*i64", "i32", "constexpr", "fp32", "constexpr"]
MAPS = [Map(3, 128, 64), Map(2, 64, 32)]
ENTRY = """
.visible .entry toy_kernel(
	.param .align 64 .b8 toy_kernel_param_0[128],
	.param .u32 toy_kernel_param_1,
	.param .u32 toy_kernel_param_2,
	.param .u64 toy_kernel_param_3,
	.param .u64 toy_kernel_param_4,
	.param .u64 .ptr .global .align 1 toy_kernel_param_5
)
"""


def loaded(kinds=KINDS, maps=MAPS):
    """A kernel with arguments of these kinds, as it is loaded from disk."""
    source = SimpleNamespace(signature={str(place): kind for place, kind in enumerate(kinds)})
    return SimpleNamespace(function=77, src=source, metadata=SimpleNamespace(num_warps=4, shared=512, maps=maps))


@pytest.fixture
def driver(monkeypatch):
    """A driver that notes the parameters of a launch, and maps that say what they were made of."""
    heard = []

    def launch(config, function, params, _):
        about = config._obj
        heard.append({"function": function.value, "sizes": list(about.sizes), "stream": about.stream, "params": list(params)})
        heard[-1]["maps"] = [ctypes.string_at(params[place], MAP_BYTES) for place in (0, 5)]
        sizes = [ctypes.string_at(params[place], 8) for place in (1, 2, 3, 4, 6, 7, 8, 9)]
        heard[-1]["about"] = [struct.unpack("<q", each)[0] for each in sizes]
        heard[-1]["rest"] = [ctypes.string_at(params[place], 8) for place in (10, 11, 12, 13)]
        return 0

    def encoded(address, *about):
        return repr((address, *about)).encode().ljust(MAP_BYTES, b".")

    monkeypatch.setattr(described, "cuda_launch", lambda: launch)
    monkeypatch.setattr(described, "encoded", encoded)
    return heard


def test_maps_sizes_addresses_and_numbers_lie_where_the_kernel_reads_them(driver):
    kernel = described_kernel(loaded(), [True, True, True, False], 3)
    first, second = torch.zeros(300, 128, dtype=torch.bfloat16)[:, :96], torch.zeros(7, 64, dtype=torch.bfloat16)
    assert kernel(13, 5, [first, second, 4096], (11, 99, 0.5))
    heard = driver[0]
    assert (heard["function"], heard["stream"]) == (77, 5)
    assert heard["sizes"] == [13, 1, 1, 128, 1, 1, 512]
    assert heard["about"] == [300, 96, 128, 1, 7, 64, 64, 1]
    assert heard["rest"] == [struct.pack("<q", 4096), bytes(8), struct.pack("<i4x", 11), struct.pack("<f4x", 0.5)]
    wanted = [
        (first.data_ptr(), 300, 96, 128, torch.bfloat16, MAPS[0]),
        (second.data_ptr(), 7, 64, 64, torch.bfloat16, MAPS[1]),
    ]
    assert [each.rstrip(b".").decode() for each in heard["maps"]] == [repr(each) for each in wanted]
    assert all(heard["params"][place] % MAP_ALIGNED == 0 for place in (0, 5))


def test_a_map_that_the_driver_refuses_is_left_to_triton(driver, monkeypatch):
    monkeypatch.setattr(described, "encoded", lambda *_: None)
    kernel = described_kernel(loaded(), [True] * 4, 3)
    assert not kernel(1, 0, [torch.zeros(8, 64), torch.zeros(8, 64), 0, 0], (1, 1, 1.0))
    assert not driver


@pytest.mark.parametrize(
    "kinds", [["tensordesc<bf16[8, 8]>", "i32", "*fp32", "*fp32"], [*KINDS[:4], "i1", "i32", "fp32"], KINDS[:5]]
)
def test_other_arguments_are_left_to_triton(driver, kinds):
    assert described_kernel(loaded(kinds), [True] * 4, 3) is None


@pytest.mark.parametrize("change", [None, ("u64", "u32"), ("[128]", "[64]"), ("tensordesc", "*bf16")])
def test_maps_are_read_only_where_the_parameters_are_as_expected(change):
    about = [{"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [128, 64], "fp4_padded": False}]
    kind, text = "tensordesc<bf16[128, 64]>", ENTRY
    if change is not None:
        kind, text = kind.replace(*change), text.replace(*change)
    source = SimpleNamespace(signature={"hidden": kind, "bias": "*fp32"})
    compiled = SimpleNamespace(metadata=SimpleNamespace(tensordesc_meta=about), src=source, asm={"ptx": text})
    assert maps_of(compiled) == ([Map(3, 128, 64)] if change is None else None)


def test_a_kernel_without_descriptors_has_no_maps():
    source = SimpleNamespace(signature={"x": "*fp32"})
    assert maps_of(SimpleNamespace(metadata=SimpleNamespace(), src=source, asm={"ptx": ENTRY})) == []


@pytest.mark.gpu
def test_the_driver_encodes_maps_and_refuses_rows_that_start_at_odd_places():
    x = torch.zeros(300, 128, dtype=torch.bfloat16, device="cuda")
    assert len(described.encoded(x.data_ptr(), 300, 128, 128, x.dtype, MAPS[0])) == MAP_BYTES
    assert described.encoded(x.data_ptr(), 300, 128, 127, x.dtype, MAPS[0]) is None


@pytest.mark.gpu
def test_a_large_head_is_launched_directly_and_by_triton_alike(monkeypatch):
    from engines.linear.oracle import made_up
    from manyhot import LinearScores, SparseLabels, zlpr_loss
    from manyhot.engines.triton.launch import launcher
    from manyhot.engines.triton.linear import product

    if torch.cuda.get_device_capability() != product.CAPABILITY:
        pytest.skip("the kernel with descriptors serves Hopper alone")
    hidden, weight, _ = made_up(torch.Generator().manual_seed(0), 128, 9000, 64, spread=0.1)
    parts = [part.cuda().bfloat16().requires_grad_() for part in (hidden, weight)]
    labels = SparseLabels.from_lists([[row, 70 * row] for row in range(1, 129)], num_labels=9000).to("cuda")
    monkeypatch.setattr(product, "faster", lambda *_: True)
    served, call = [], described.DescribedKernel.__call__
    monkeypatch.setattr(described.DescribedKernel, "__call__", lambda self, *given: served.append(1) or call(self, *given))
    found = []
    for maps in (described.maps_of, lambda _: None):
        monkeypatch.setattr("manyhot.engines.triton.launch.loading.maps_of", maps)
        monkeypatch.setattr("manyhot.engines.triton.launch.loading.read", lambda _: None)
        monkeypatch.setattr(launcher, "_LAUNCHERS", {})
        loss = zlpr_loss(LinearScores(*parts, memory_budget=0), labels)
        found.append((loss, *torch.autograd.grad(loss, parts), len(served)))
    assert found[0][3] == found[1][3] == 2
    assert all(torch.equal(one, other) for one, other in zip(found[0][:2], found[1][:2], strict=True))
    assert (found[0][2] - found[1][2]).abs().max() <= 1e-3 * found[1][2].abs().max()
