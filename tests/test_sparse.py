import subprocess
import sys

import torch

from manyhot._sparse import sparse_tensor


def test_values_stand_at_their_indices():
    made = sparse_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0]), (2, 2), is_coalesced=True)
    assert made.is_coalesced()
    assert made.to_dense().tolist() == [[0.0, 2.0], [3.0, 0.0]]


def test_no_version_of_torch_warns_about_the_checks():
    """torch warns once in a process, so this one gets its own."""
    code = (
        "import torch; from manyhot._sparse import sparse_tensor\n"
        "made = sparse_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (2, 2), is_coalesced=False).coalesce()\n"
        "torch.sparse.mm(made, made.index_select(0, torch.tensor([1, 0])).to_dense())\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
