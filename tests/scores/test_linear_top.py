"""The best labels of a chunk in two stages: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import LinearScores
from manyhot.scores import best, linear_top

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from scores.test_linear_top import check_chunks
check_chunks("cpu", torch.float32)
print("checked")
"""


def check_chunks(device, dtype, rows=5):
    generator = torch.Generator().manual_seed(0)
    for k, width in ((1, 700), (3, 2048), (3, 8 * 3 * best.GROUP + 1)):
        scores = torch.randn(rows, width, generator=generator).to(device, dtype)
        bias = torch.randn(width, generator=generator).to(device)
        where = (torch.rand(width, generator=generator) < 0.02).to(device)
        where[:k] = True
        for own_bias in (None, bias):
            for own_where in (None, where):
                check_chunk(scores, own_bias, own_where, k)
    rising = torch.arange(700.0, device=device, dtype=dtype).expand(2, 700).contiguous()
    check_chunk(rising, None, None, 1)
    check_chunk(rising.clone().fill_(-torch.inf), None, None, 1)
    broken = rising.clone()
    broken[0, 17] = torch.nan
    assert linear_top.best_of_chunk(broken, None, None, 1)[1][:, 0].tolist() == [17, 699]


def check_chunk(scores, bias, where, k):
    values, places = linear_top.best_of_chunk(scores, bias, where, k)
    all_scores = scores.float() if bias is None else scores.float() + bias
    all_scores = all_scores if where is None else all_scores.masked_fill(~where, -torch.inf)
    wanted, order = all_scores.cpu().sort(dim=1, descending=True, stable=True)
    assert torch.equal(values.cpu(), wanted[:, :k])
    assert torch.equal(places.cpu(), order[:, :k])


def test_the_two_stages_find_what_one_sort_of_all_scores_finds_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_two_stages_find_what_one_sort_of_all_scores_finds(dtype):
    check_chunks("cuda", dtype, rows=130)


@pytest.mark.gpu
def test_many_labels_on_the_device_have_the_best_of_dense_scores():
    generator = torch.Generator().manual_seed(1)
    hidden, weight, bias = (torch.randn(*shape, generator=generator).cuda() for shape in ((33, 16), (100_003, 16), (100_003,)))
    dense = torch.nn.functional.linear(hidden, weight) + bias
    for size in (None, 30_000):
        top = LinearScores(hidden, weight, bias, chunk_size=size).top(5)
        torch.testing.assert_close(top.values, dense.topk(5).values)
        torch.testing.assert_close(dense.gather(1, top.indices), top.values)


@pytest.mark.parametrize(("groups", "k"), [(100, 5), (2561, 5), (600, 1), (1024, 2), (700, 1)])
def test_the_leading_groups_of_many_are_found_in_two_stages(groups, k):
    draw = torch.Generator().manual_seed(0)
    maxima = torch.randn(7, groups, generator=draw)
    maxima[1] = -torch.inf
    maxima[1, -k:] = torch.arange(float(k))
    maxima[2, :3] = torch.inf
    maxima[3] = 0.5
    keys = best.ordered(maxima, torch.arange(groups).expand_as(maxima))
    found = best.leading(keys, k).sort(dim=1).values
    assert torch.equal(found, maxima.sort(dim=1, descending=True, stable=True).indices[:, :k].sort(dim=1).values)


def test_keys_have_the_order_of_the_values_and_then_of_the_places():
    values = torch.tensor([[0.0, -0.0, 1e-45, -1e-45, torch.inf, -torch.inf, torch.nan, -torch.nan, 1.0, 1.0, -1.0]])
    order = best.ordered(values, torch.arange(values.shape[1]).unsqueeze(0)).argsort(dim=1, descending=True)
    assert order[0].tolist() == [6, 7, 4, 8, 9, 2, 0, 1, 3, 10, 5]
