"""What each process of a group checks about label shards, against the same problem with all labels in one place."""

import functools
import itertools

import pytest
import torch
import torch.distributed as dist

from manyhot import (
    DecisionRule,
    LinearScores,
    SparseLabels,
    decide,
    decide_sparse,
    decoupled_softmax_loss,
    gather_rows,
    pairwise_loss,
    tlpr_loss,
    two_way_loss,
    zlpr_loss,
)
from manyhot.metrics import auroc_score, f1_score, precision_at_k
from manyhot.scores import shards
from scores.scale_page import formulas

ROWS, SIZE, NUM_LABELS = 7, 5, 23
LOSSES = {
    "zlpr": zlpr_loss,
    "tlpr": lambda scores, *rest, **about: tlpr_loss(scores, *rest, torch.linspace(-1, 1, ROWS, device=scores.device), **about),
    "pairwise": pairwise_loss,
    "circle": functools.partial(pairwise_loss, scale=3.0, margin=0.2),
    "two_way": functools.partial(two_way_loss, batch_weight=0.0),
    "decoupled": functools.partial(decoupled_softmax_loss, scale=2.0),
}
# Settings that a loss does not have, or not with lazy scores.
LEFT_OUT = {"two_way": ("pos_weight", "neg_weight"), "decoupled": ("pos_weight", "neg_weight", "smoothing")}
RULES = (
    None,
    DecisionRule(top_k=4),
    DecisionRule(min_labels=2, max_labels=3),
    DecisionRule(min_labels=1, threshold=0.7),
    DecisionRule(threshold=torch.linspace(-1, 1, NUM_LABELS).tolist()),
)


def bounds(kind, count):
    """Where the shards end: as equal as can be, one of one label, or one without labels."""
    if kind == "even" or count == 1:
        return [round(NUM_LABELS * place / count) for place in range(count + 1)]
    first = 1 if kind == "uneven" else 0
    return [0, first, *(first + round((NUM_LABELS - first) * place / (count - 1)) for place in range(1, count))]


def problem(dtype=torch.float64, seed=0, device="cpu"):
    """Hidden, weight, bias and labels. Row 0 has no label, row 1 all of them; no other row has labels from 12 on."""
    draw = torch.Generator().manual_seed(seed)
    parts = [torch.randn(*shape, generator=draw, dtype=dtype) for shape in ((ROWS, SIZE), (NUM_LABELS, SIZE), (NUM_LABELS,))]
    labels = torch.rand(ROWS, NUM_LABELS, generator=draw) < 0.3
    labels[:, 12:], labels[0], labels[1] = False, False, True
    return [part.to(device) for part in parts], labels.to(device)


SETTINGS = ("plain", "weights", "smoothing", "where")


def extras(kind, device):
    """Settings of a loss."""
    draw = torch.Generator().manual_seed(3)
    weights = (torch.rand(NUM_LABELS, generator=draw, dtype=torch.float64) + 0.1).to(device)
    where = (torch.rand(ROWS, NUM_LABELS, generator=draw) < 0.8).to(device)
    return {
        "plain": {},
        "weights": {"pos_weight": weights, "neg_weight": 0.5, "sample_weight": weights[:ROWS]},
        "smoothing": {"smoothing": 0.1, "reduction": "sum"},
        "where": {"where": where, "smoothing": 0.05},
    }[kind]


def shard(cuts, parts):
    """Leaves of this process: all of hidden, its labels' weight and bias."""
    rank = dist.get_rank()
    hidden, weight, bias = parts
    own = slice(cuts[rank], cuts[rank + 1])
    return own, [part.clone().requires_grad_() for part in (hidden, weight[own], bias[own])]


def whole(parts):
    return [part.clone().requires_grad_() for part in parts]


def check_gradients(own, mine, all_parts, value, expected, **bounds_):
    torch.testing.assert_close(value, expected, **bounds_)
    value.backward()
    expected.backward()
    torch.testing.assert_close(mine[0].grad, all_parts[0].grad, **bounds_)
    for part, full in zip(mine[1:], all_parts[1:], strict=True):
        torch.testing.assert_close(part.grad, full.grad[own], **bounds_)


def check_losses(rank, *, device="cpu", dtype=torch.float64, close=1e-9):
    """Value and all gradients within 1e-9 of one process, in float64."""
    count = dist.get_world_size()
    given, truth = problem(dtype, device=device)
    soft = truth * torch.rand(truth.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(device)
    forms = {
        "hard": truth,
        "soft": soft,
        "sparse": SparseLabels.from_dense(truth),
        "soft sparse": SparseLabels.from_dense(soft),
        # The last shard has no positive in any row.
        "first half": SparseLabels.from_dense(truth & (torch.arange(NUM_LABELS, device=device) < 12)),
    }
    cases = [("uneven", name, "sparse", settings) for name in LOSSES for settings in SETTINGS]
    cases += [("even", name, "first half", settings) for name in LOSSES for settings in SETTINGS]
    cases += [(kind, name, form, "where") for kind in ("even", "empty") for form in forms for name in ("zlpr", "decoupled")]
    for kind, name, form, settings in cases:
        loss = LOSSES[name]
        about = extras(settings, device)
        left_out = LEFT_OUT.get(name, ())
        about = {key: value for key, value in about.items() if key not in left_out}
        own, mine = shard(bounds(kind, count), given)
        scores = LinearScores(*mine, group=dist.group.WORLD, chunk_size=4, offset=own.start, num_labels=NUM_LABELS)
        full = whole(given)
        check_gradients(own, mine, full, loss(scores, forms[form], **about),
                        loss(LinearScores(*full), forms[form], **about), rtol=close, atol=close)  # fmt: skip


def check_wire(rank):
    """A loss takes one gather of 16 bytes a row, decoupled softmax two of 20, and backward one sum of the size of hidden."""
    seen = []
    gather, reduce = shards.all_gather, dist.all_reduce

    def noted_gather(out, own, **rest):
        seen.append(("gather", own.numel() * own.element_size()))
        return gather(out, own, **rest)

    def noted_reduce(x, *rest, **more):
        seen.append(("reduce", x.numel() * x.element_size()))
        return reduce(x, *rest, **more)

    shards.all_gather, dist.all_reduce = noted_gather, noted_reduce
    try:
        given, truth = problem(torch.float32)
        own, mine = shard(bounds("even", dist.get_world_size()), given)
        place = {"group": dist.group.WORLD, "offset": own.start, "num_labels": NUM_LABELS}
        zlpr_loss(LinearScores(*mine, **place), truth).backward()
        assert seen == [("gather", 16 * ROWS), ("reduce", 4 * ROWS * SIZE)]
        # A process sends its part of a gather to all others; a ring sum passes the tensor round twice, less one part.
        count = dist.get_world_size()
        sent = count * (count - 1) * seen[0][1] + 2 * (count - 1) * seen[1][1]
        assert sent == formulas()["sent_in_a_step"](ROWS, SIZE, count)
        seen.clear()
        decoupled_softmax_loss(LinearScores(*shard(bounds("even", count), given)[1], **place), truth).backward()
        assert seen == [("gather", 8 * ROWS), ("gather", 12 * ROWS), ("reduce", 4 * ROWS * SIZE)]
        sent = count * (count - 1) * (seen[0][1] + seen[1][1]) + 2 * (count - 1) * seen[2][1]
        assert sent == formulas()["sent_in_a_step"](ROWS, SIZE, count, loss="decoupled")
        seen.clear()
        gather_rows(given[0], dist.group.WORLD)
        gather_rows(SparseLabels.from_lists([[1, 2]] * ROWS, num_labels=NUM_LABELS), dist.group.WORLD)
        sent = count * (count - 1) * sum(size for _, size in seen)
        assert sent == formulas()["sent_by_gather_rows"](count * ROWS, SIZE, count * 2 * ROWS, count)
    finally:
        shards.all_gather, dist.all_reduce = gather, reduce


def check_extremes(rank, *, device="cpu"):
    """Scores that one float could not sum, and infinite ones."""
    cuts = bounds("even", dist.get_world_size())
    for big in (1e7, torch.inf):
        given, truth = problem(torch.float32, device=device)
        given[2][2], given[2][20] = big, -big
        own, mine = shard(cuts, given)
        full = whole(given)
        scores = LinearScores(*mine, group=dist.group.WORLD)
        check_gradients(own, mine, full, zlpr_loss(scores, truth, reduction="none")[2:].sum(),
                        zlpr_loss(LinearScores(*full), truth, reduction="none")[2:].sum(), rtol=1e-5, atol=1e-6)  # fmt: skip


def check_compiled_and_autocast(rank):
    """Compiled and under autocast: within 1e-9 in float64, which autocast leaves alone; float32 products become bfloat16.

    With rows without labels, and shards without positives, uneven and empty.
    """
    count = dist.get_world_size()
    cases = (
        ("uneven", "zlpr", "weights"),
        ("uneven", "tlpr", "plain"),
        ("empty", "pairwise", "smoothing"),
        ("uneven", "decoupled", "plain"),
    )
    for kind, name, settings in cases:
        given, truth = problem()
        labels, about = SparseLabels.from_dense(truth), extras(settings, "cpu")
        _check_encoded(bounds(kind, count), given, LOSSES[name], labels, about, close=1e-9)
        torch.compiler.reset()
    given, truth = problem(torch.float32)
    about = {"smoothing": 0.1}
    _check_encoded(bounds("uneven", count), given, zlpr_loss, SparseLabels.from_dense(truth), about, close=1e-5, half=2e-2)


def _check_encoded(cuts, given, loss, labels, about, *, close, half=None):
    """A loss behind an encoder, compiled and under autocast, beside one process."""

    def encoded(hidden, weight, bias, **place):
        return loss(LinearScores(torch.tanh(hidden) * 2, weight, bias, **place), labels, **about)

    own, mine = shard(cuts, given)
    place = {"group": dist.group.WORLD, "offset": own.start, "num_labels": NUM_LABELS}
    full = whole(given)
    compiled = torch.compile(encoded, backend="aot_eager")
    check_gradients(own, mine, full, compiled(*mine, **place), encoded(*full), rtol=close, atol=close)
    own, mine = shard(cuts, given)
    full = whole(given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, expected = encoded(*mine, **place), encoded(*full)
    bound = {"rtol": close, "atol": close} if half is None else {"rtol": half, "atol": half / 10}
    check_gradients(own, mine, full, value, expected, **bound)


def check_decisions(rank, *, device="cpu"):
    """Decisions, best labels, dense scores and metrics."""
    count = dist.get_world_size()
    (hidden, weight, bias), truth = problem(device=device)
    weight[9], bias[9] = weight[3], bias[3]  # a tie across shards
    alone = LinearScores(hidden, weight, bias)
    where = torch.arange(NUM_LABELS, device=device) % 5 != 1
    for kind in ("even", "uneven", "empty"):
        cuts = bounds(kind, count)
        own, mine = shard(cuts, (hidden, weight, bias))
        scores = LinearScores(*mine, group=dist.group.WORLD, chunk_size=3)
        assert scores.shape == alone.shape
        assert scores.first_label == cuts[rank]
        assert f"labels {cuts[rank]} to {cuts[rank + 1]} here" in repr(scores)
        for rule in RULES:
            for mask in (None, where):
                assert torch.equal(decide(scores, rule, where=mask), decide(alone, rule, where=mask))
                assert decide_sparse(scores, rule, where=mask).lists() == decide_sparse(alone, rule, where=mask).lists()
        for k, mask in itertools.product((1, 6, NUM_LABELS, 40), (None, where)):
            mine_top, full_top = scores.top(k, where=mask), alone.top(k, where=mask)
            torch.testing.assert_close(mine_top.values, full_top.values)
            assert [set(row) for row in mine_top.indices.tolist()] == [set(row) for row in full_top.indices.tolist()]
        dense = scores.dense()
        torch.testing.assert_close(dense, alone.dense())
        dense.square().sum().backward()
        full = whole((hidden, weight, bias))
        LinearScores(*full).dense().square().sum().backward()
        torch.testing.assert_close(mine[0].grad, full[0].grad)
        torch.testing.assert_close(mine[1].grad, full[1].grad[own])
        assert precision_at_k(scores, truth, k=3) == precision_at_k(alone, truth, k=3)
        torch.testing.assert_close(auroc_score(scores, truth), auroc_score(alone, truth))
        assert f1_score(decide(scores), truth) == f1_score(decide(alone), truth)


def check_messages(rank):
    """What does not fit together is said on every process."""
    given, _ = problem()
    group, count = dist.group.WORLD, dist.get_world_size()
    told = [
        (lambda: LinearScores(given[0], given[1], offset=3), "give `group` too"),
        (lambda: LinearScores(given[0], given[1], group=group, offset=3, num_labels=20), "must be a shard of 20 labels"),
        (lambda: LinearScores(given[0], given[1], group=group, offset=0), "must cover every label exactly once"),
        (lambda: LinearScores(given[0], given[1], group=group, num_labels=5), f"got {count * NUM_LABELS}"),
    ]
    for make, words in told:
        with pytest.raises(ValueError, match=words):
            make()


def check_all(rank):
    """All of it, in one start of the processes."""
    for check in (check_losses, check_wire, check_extremes, check_decisions, check_messages):
        check(rank)
