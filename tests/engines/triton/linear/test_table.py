"""The update of a table on CUDA: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot.engines.triton.linear import table

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.linear.test_table import check_bags, check_updates
check_updates("cpu")
check_bags("cpu")
print("checked")
"""


# Rows, columns, width, entries; the last ones have columns with more entries than one program sums.
SIZES = (
    (5, 7, 4, 1),
    (5, 7, 5, 60),
    (3, 40, 33, 25),
    (6, 1, 8, 50),
    (9, 1, 4, 64),
    (9, 1, 4, 65),
    (9, 2, 5, 700),
    (9, 5, 8, 900),
)


def check_updates(device):
    draw = torch.Generator().manual_seed(0)
    for rows, width, hidden, size in SIZES:
        weight, squares = torch.randn(width, hidden, generator=draw), torch.rand(width, generator=draw)
        columns, owners = (torch.randint(0, most, (size,), generator=draw, dtype=torch.int32) for most in (width, rows))
        values, gradient = torch.rand(size, generator=draw), torch.randn(rows, hidden, generator=draw)
        x = torch.zeros(rows, width, dtype=torch.float64).index_put((owners, columns), values.double(), accumulate=True)
        # Room left over has no column.
        columns = torch.cat([columns, torch.full((70,), table.NO_COLUMN, dtype=torch.int32)])
        owners, values = torch.cat([owners, owners.new_zeros(70)]), torch.cat([values, torch.ones(70)])
        change = x.T @ gradient.double()
        wanted_squares = squares.double() + change.square().mean(dim=1)
        wanted = weight.double() - 0.3 * change / wanted_squares.sqrt().unsqueeze(1)
        parts = [weight, squares, torch.tensor(0.3), columns, owners, values, gradient]
        parts = [part.to(device) for part in parts]
        table.update(*parts)
        torch.testing.assert_close(parts[0].cpu().double(), wanted, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(parts[1].cpu().double(), wanted_squares, rtol=1e-5, atol=1e-6)


def check_bags(device):
    draw = torch.Generator().manual_seed(0)
    for rows, width, hidden, most in ((5, 7, 4, 3), (4, 9, 33, 40), (3, 4, 3, 0)):
        weight = torch.randn(width, hidden, generator=draw)
        offsets = torch.cat([torch.zeros(1), torch.randint(0, most + 1, (rows,), generator=draw).cumsum(0)]).int()
        # Entries behind the last offset are room left over.
        size = int(offsets[-1]) + 5
        columns = torch.randint(0, width, (size,), generator=draw, dtype=torch.int32)
        columns[int(offsets[-1]) :] = table.NO_COLUMN
        for values in (None, torch.rand(size, generator=draw)):
            own = torch.ones(size) if values is None else values
            spans = [slice(*offsets[row : row + 2].tolist()) for row in range(rows)]
            wanted = torch.stack([(weight[columns[span].long()].double() * own[span, None]).sum(dim=0) for span in spans])
            parts = [part if part is None else part.to(device) for part in (weight, columns, offsets, values)]
            torch.testing.assert_close(table.bag(*parts).cpu().double(), wanted, rtol=1e-5, atol=1e-6)
            small = (40 * weight).round().clamp(-127, 127).to(torch.int8)
            wanted = torch.stack([(small[columns[span].long()].double() * own[span, None]).sum(dim=0) for span in spans])
            found = table.bag(small.to(device), *parts[1:])
            assert found.dtype == torch.float32
            torch.testing.assert_close(found.cpu().double(), wanted, rtol=1e-5, atol=1e-4)


def test_the_table_moves_by_row_wise_adagrad_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
def test_the_table_moves_by_row_wise_adagrad():
    check_updates("cuda")
    check_bags("cuda")


@pytest.mark.gpu
def test_two_updates_of_the_same_batch_are_bitwise_equal():
    draw = torch.Generator("cuda").manual_seed(0)
    columns = (torch.rand(50_000, generator=draw, device="cuda") ** 4 * 1000).int()
    rows = torch.randint(0, 2048, (50_000,), generator=draw, device="cuda", dtype=torch.int32)
    values, gradient = torch.rand(50_000, device="cuda"), torch.randn(2048, 512, device="cuda")
    found = []
    for _ in range(2):
        weight, squares = torch.ones(1000, 512, device="cuda"), torch.zeros(1000, device="cuda")
        table.update(weight, squares, torch.tensor(0.1, device="cuda"), columns, rows, values, gradient)
        found.append(weight)
    assert torch.equal(*found)
