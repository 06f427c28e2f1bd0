"""Windows on their device: batches are what padding by hand gives, and both ways through a BiLSTM agree."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from manyhot.engines.native import lstm as native
from manyhot.training.spans import encoders
from manyhot.training.spans import rows as span_rows
from manyhot.training.spans.encoders import LockedDropout, RecurrentEncoder, TokenVectors, packing
from manyhot.training.spans.inputs import Encoded
from manyhot.training.spans.rows import StoredRows, send

CPU = torch.device("cpu")
SHAPE = {"tables": [12, 6, 5], "uses": [0, 1, 1, 2], "letters": 9, "hidden": 7, "layers": 2, "dropout": 0.4}


def make_rows(lengths, seed=0):
    draw = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        cells = {tuple(sorted(draw.integers(0, length, 2).tolist())) for _ in range(3)} if length else set()
        spans = np.array(sorted((int(draw.integers(0, 2)), *cell) for cell in cells), dtype=np.int64).reshape(-1, 3)
        features, letters = draw.integers(2, 5, (length, 4)), draw.integers(0, 9, (length, 6))
        rows.append(Encoded(features.astype(np.int32), letters.astype(np.int32), spans))
    return rows


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.randoms(use_true_random=False))
def test_a_batch_is_its_rows_padded(lengths, random):
    rows = make_rows(lengths)
    stored = StoredRows(rows, num_types=2, device=CPU)
    picked = np.array(random.sample(range(len(rows)), k=random.randint(1, len(rows))))
    batch = stored.batch(picked)
    size = max(max(len(rows[place]) for place in picked), 1)
    assert batch.features.shape == (len(picked), size, 4)
    assert batch.labels.shape == (len(picked), 2, size, size)
    for place, row in enumerate(picked):
        own = rows[row]
        assert np.array_equal(batch.features[place, : len(own)], own.features)
        assert np.array_equal(batch.letters[place, : len(own)], own.letters)
        assert not batch.features[place, len(own) :].any()
        assert not batch.letters[place, len(own) :].any()
    assert batch.lengths.tolist() == batch.sizes.tolist() == [len(rows[row]) for row in picked]
    assert batch.labels.lists() == [list(map(tuple, rows[row].spans.tolist())) for row in picked]


def test_rows_that_have_no_room_on_the_device_are_sent_with_each_batch(monkeypatch):
    rows = make_rows([3, 5, 2])
    held = StoredRows(rows, num_types=2, device=CPU).batch(np.array([2, 0]))
    monkeypatch.setattr(span_rows, "DEVICE_BYTES", 0)
    sent = StoredRows(rows, num_types=2, device=CPU).batch(np.array([2, 0]))
    assert torch.equal(held.features, sent.features)
    assert torch.equal(held.letters, sent.letters)


def test_arrays_are_sent_in_one_piece_and_come_out_apart():
    parts = [np.arange(size) + 10 * size for size in (3, 0, 4, 1)]
    there = send(parts, CPU)
    assert [part.tolist() for part in there] == [part.tolist() for part in parts]
    assert all((part.data_ptr() - there[0].data_ptr()) % 16 == 0 for part in there if len(part))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_packing_is_that_of_torch(lengths):
    rows = torch.arange(len(lengths) * 9).reshape(len(lengths), 9)
    real = torch.tensor(lengths).clamp(min=1)
    wanted = torch.nn.utils.rnn.pack_padded_sequence(rows, real, batch_first=True, enforce_sorted=False)
    order, counts = packing(np.array(lengths), 9)
    assert counts.tolist() == wanted.batch_sizes.tolist()
    # Rows of one length may stand in any order: the same tokens side by side at every step.
    start = 0
    for count in counts.tolist():
        assert sorted(order[start : start + count]) == sorted(wanted.data[start : start + count].tolist())
        start += count


@pytest.mark.parametrize("lengths", [[4, 9, 1, 9, 6], [5], [3, 0, 2]])
def test_packed_and_padded_rows_go_through_a_bilstm_alike(lengths):
    torch.manual_seed(0)
    encoder = RecurrentEncoder(SHAPE).double()
    batch = StoredRows(make_rows(lengths), num_types=2, device=CPU).batch(np.arange(len(lengths)))
    vectors = torch.randn(len(lengths), max(lengths), encoder.vectors.width, dtype=torch.float64, requires_grad=True)
    there = (torch.arange(max(lengths)) < batch.lengths.unsqueeze(1)).unsqueeze(2)
    kept = [torch.rand(len(lengths), 1, size) < 0.5 for size in (encoder.vectors.width, encoder.width)]
    one, two = (run(vectors, batch, kept) * there for run in (encoder._packed, encoder._padded))
    torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
    pull = torch.randn_like(one)
    inputs = [vectors, *encoder.recurrent.parameters()]
    for mine, other in zip(*(torch.autograd.grad((out * pull).sum(), inputs) for out in (one, two)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


NATIVE_SHAPE = {"tables": [12, 6, 5], "uses": [0, 1, 1, 2], "letters": 0, "hidden": 16, "layers": 2, "dropout": 0.5}
needs_native = pytest.mark.skipif(not native.available()[0], reason="the native engine was not built")


def native_problem(lengths):
    """An encoder whose sizes the native engine takes, and a batch."""
    torch.manual_seed(0)
    encoder = RecurrentEncoder(NATIVE_SHAPE)
    return encoder, StoredRows(make_rows(lengths), num_types=2, device=CPU).batch(np.arange(len(lengths)))


def run_encoder(encoder, batch):
    """Hidden states and all gradients, with the same draws in every call."""
    torch.manual_seed(1)
    hidden = encoder(batch)
    pull = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2))
    there = (torch.arange(hidden.shape[1]) < batch.lengths.unsqueeze(1)).unsqueeze(2)
    return hidden * there, torch.autograd.grad((hidden * pull * there).sum(), list(encoder.parameters()))


@needs_native
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("lengths", [[4, 9, 1, 9, 6], [5], [3, 0, 2]])
def test_the_native_engine_gives_the_states_and_gradients_of_torch(lengths, training, one_thread, monkeypatch):
    encoder, batch = native_problem(lengths)
    encoder.train(training)
    assert encoder._is_native(torch.randn(1, 1, encoder.vectors.width))
    mine, grads = run_encoder(encoder, batch)
    monkeypatch.setattr(RecurrentEncoder, "_is_native", lambda *_: False)
    wanted, wanted_grads = run_encoder(encoder, batch)
    torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-6)
    for one, two in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=3e-6)


@needs_native
def test_without_the_native_engine_torch_computes_and_one_warning_says_so(one_thread, monkeypatch):
    encoder, batch = native_problem([4, 2])
    encoder.eval()
    wanted = encoder(batch)
    monkeypatch.setattr(native, "available", lambda: (False, "it was not built."))
    monkeypatch.setattr(encoders.NATIVE_GATE, "warned", False)
    with pytest.warns(RuntimeWarning, match="it was not built") as caught:
        found = [encoder(batch) for _ in range(2)]
    assert len(caught) == 1
    for each in found:
        torch.testing.assert_close(each, wanted, rtol=1e-5, atol=1e-6)


@needs_native
def test_a_network_in_float64_and_one_without_memory_are_left_to_torch(one_thread):
    encoder, batch = native_problem([4, 2])
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert not encoder._is_native(torch.randn(1, 1, encoder.vectors.width))
        assert encoder(batch).shape == (2, 4, 32)
    assert encoder._is_native(torch.randn(1, 1, encoder.vectors.width))
    assert not encoder.double()._is_native(torch.randn(1, 1, encoder.vectors.width))


@pytest.mark.parametrize("uses", [[0, 1, 1, 2], [0, 1], [1, 0, 1]])
def test_vectors_of_tokens_are_their_embeddings_side_by_side(uses):
    torch.manual_seed(0)
    vectors = TokenVectors({"tables": [12, 6, 5], "uses": uses, "letters": 0}).eval()
    features = torch.randint(0, 5, (3, 4, len(uses)), dtype=torch.int32)
    made = vectors(features, torch.zeros(3, 4, 0, dtype=torch.int32))
    wanted = [vectors.tables[use].weight[features[..., place].long()] for place, use in enumerate(uses)]
    assert torch.equal(made, torch.cat(wanted, dim=-1))
    assert made.shape[-1] == vectors.width


def test_dropout_between_layers_is_the_same_at_all_tokens_and_keeps_the_mean():
    torch.manual_seed(0)
    dropout = LockedDropout(0.25)
    x = torch.ones(400, 3, 50)
    kept = dropout.draw(x)
    assert kept.shape == (400, 1, 50)
    out = dropout(x, kept)
    assert torch.equal(out, out[:, :1].expand_as(out))
    assert float(out.mean()) == pytest.approx(1.0, abs=0.02)
    assert dropout.eval().draw(x) is None
    assert dropout(x, None) is x


def test_what_stands_in_other_rows_changes_nothing_in_a_row():
    torch.manual_seed(0)
    encoder = RecurrentEncoder(SHAPE).eval()
    stored = StoredRows(make_rows([4, 9, 2]), num_types=2, device=CPU)
    alone, among = encoder(stored.batch(np.array([0]))), encoder(stored.batch(np.array([1, 0, 2])))
    torch.testing.assert_close(alone[0], among[1, :4])
    assert not among[1, 4:].any()
