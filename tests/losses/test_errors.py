"""Wrong input to a loss: one clear sentence that says whose, what, wanted, got, and what to do."""

import numpy as np
import pytest
import torch

from manyhot import (
    LOSSES,
    LinearScores,
    SparseLabels,
    TLPRLoss,
    asymmetric_loss,
    bce_loss,
    dice_loss,
    focal_loss,
    get_loss,
    lsep_loss,
    pairwise_loss,
    softmax_loss,
    tlpr_loss,
    two_way_loss,
    zlpr_loss,
)

logits, labels = torch.zeros(8, 50), torch.zeros(8, 50, dtype=torch.bool)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_names_itself_and_both_shapes(name):
    function = LOSSES[name].function.__name__
    with pytest.raises(ValueError, match=rf"{function}: `labels` must have the shape of `logits`, \[8, 50\]; got \[8, 49\]"):
        LOSSES[name](logits, labels[:, :49])


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_catches_swapped_hard_labels_by_their_type(name):
    with pytest.raises(TypeError, match=r"got torch.bool. The order is \(logits, labels\): are the arguments swapped\?"):
        LOSSES[name](labels, logits)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_catches_swapped_float_labels_by_who_wants_a_gradient(name, device):
    scores, truth = torch.zeros(8, 50, requires_grad=True, device=device), torch.ones(8, 50, device=device)
    with pytest.raises(ValueError, match=r"`labels` require a gradient and `logits` do not. .* are the arguments swapped\?"):
        LOSSES[name](truth, scores)
    assert LOSSES[name](scores, truth).isfinite()
    both = truth.clone().requires_grad_()
    assert LOSSES[name](scores, both).isfinite()


@pytest.mark.parametrize("name", LOSSES)
def test_the_first_call_of_every_loss_looks_at_float_labels_on_the_cpu(name, monkeypatch):
    monkeypatch.setattr("manyhot.losses.core.first_call._CHECKED", set())
    scores, truth = torch.full((8, 50), -3.0), torch.ones(8, 50)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\]; got -3 at \[0, 0\].*are the arguments swapped"):
            LOSSES[name](truth, scores)
    assert LOSSES[name](scores, truth).isfinite()


def test_the_first_call_does_not_look_where_values_cannot_be_read(monkeypatch):
    monkeypatch.setattr("manyhot.losses.core.first_call._CHECKED", set())
    scores, truth = torch.zeros(8, 50), torch.ones(8, 50)
    values = torch.func.vmap(lambda x, y: zlpr_loss(x, y))(scores, truth)
    assert values.shape == (8,)


@pytest.mark.parametrize("score", [-1e4, -1e7, -torch.inf])
def test_scores_masked_by_constants_are_refused_with_smoothing_on_request(score):
    masked = logits.clone()
    masked[3, 4] = score
    with pytest.raises(ValueError, match=r"zlpr_loss: `logits` must not be masked by constants.*at \[3, 4\].*with `where`"):
        zlpr_loss(masked, labels, smoothing=0.1, validate=True)
    assert zlpr_loss(masked, labels, smoothing=0.1, where=masked > -1e4, validate=True) < 10
    assert zlpr_loss(masked, labels, validate=True) < 10


@pytest.mark.parametrize("number", [np.float32(2.5), np.float64(2.5), np.int64(2), np.float16(0.5)])
def test_numpy_scalars_are_numbers(number):
    scores, truth = torch.randn(8, 50, requires_grad=True), torch.rand(8, 50)
    expected = zlpr_loss(scores, truth, pos_weight=float(number), neg_weight=float(number))
    torch.testing.assert_close(zlpr_loss(scores, truth, pos_weight=number, neg_weight=number), expected)
    assert zlpr_loss(scores, truth, smoothing=np.float32(0.5)) == zlpr_loss(scores, truth, smoothing=0.5)
    assert focal_loss(scores, truth, gamma=number) == focal_loss(scores, truth, gamma=float(number))
    with pytest.raises(ValueError, match=r"`pos_weight` must be >= 0; got -1"):
        zlpr_loss(scores, truth, pos_weight=np.float32(-1))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_looks_at_values_on_request(name):
    wrong = torch.zeros(8, 50)
    wrong[2, 1] = 3
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]; got 3 at \[2, 1\].*are the arguments swapped"):
        LOSSES[name](logits, wrong, validate=True)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_knows_its_reductions(name):
    with pytest.raises(ValueError, match=r"`reduction` must be one of 'mean', 'sum', 'none'; got 'men'. Did you mean 'mean'"):
        LOSSES[name](logits, labels, reduction="men")


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_checks_where_and_sample_weight(name):
    with pytest.raises(TypeError, match=r"`where` must be a bool tensor, True where a label counts; got torch.float32"):
        LOSSES[name](logits, labels, where=torch.ones(8, 50))
    with pytest.raises(ValueError, match=r"`where` must be .* broadcastable to \[8, 50\]; got \[50, 8\]"):
        LOSSES[name](logits, labels, where=torch.ones(50, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"`sample_weight` must be one value per row, broadcastable to \[8\]; got \[7\]"):
        LOSSES[name](logits, labels, sample_weight=torch.ones(7))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: zlpr_loss(logits.tolist(), labels), TypeError, "`logits` must be a floating-point tensor.*got list"),
        (lambda: zlpr_loss(logits, [[1]]), TypeError, "`labels` must be a tensor or SparseLabels; got list"),
        (lambda: zlpr_loss(torch.tensor(1.0), torch.tensor(1)), ValueError, "must have a label axis"),
        (lambda: zlpr_loss(logits, labels, pos_weight=-1.0), ValueError, "`pos_weight` must be >= 0; got -1"),
        (
            lambda: zlpr_loss(logits, labels, neg_weight=torch.full((50,), -2.0), validate=True),
            ValueError,
            "`neg_weight` must be >= 0; got -2",
        ),
        (
            lambda: zlpr_loss(logits, labels, pos_weight=torch.ones(49)),
            ValueError,
            r"one value per label, broadcastable to \[50\]; got \[49\]",
        ),
        (lambda: zlpr_loss(logits, labels, pos_weight="auto"), TypeError, "must be a number or a tensor; got str"),
        (
            lambda: zlpr_loss(logits, labels, sample_weight=torch.full((8,), -1.0), validate=True),
            ValueError,
            "`sample_weight` must be >= 0; got -1",
        ),
        (lambda: zlpr_loss(logits, labels, sample_weight=2.0), TypeError, "`sample_weight` must be a tensor; got float"),
        (lambda: zlpr_loss(logits, labels, smoothing=1.5), ValueError, r"`smoothing` must be a number in \[0, 1\]; got 1.5"),
        (lambda: zlpr_loss(logits, labels, dim=2), ValueError, r"axes of a tensor with 2 axes, each once; got \[2\]"),
        (lambda: zlpr_loss(logits, labels, dim=(-1, 1)), ValueError, "each once"),
        (lambda: zlpr_loss(logits, labels, engine="tritn"), ValueError, "`engine` must be one of"),
        (lambda: zlpr_loss(logits, labels.to(torch.complex64)), TypeError, "bool, integer or floating-point"),
        (
            lambda: zlpr_loss(logits, SparseLabels.from_lists([[0]] * 8, num_labels=49)),
            ValueError,
            "8 rows of 50 labels; got 8 rows of 49",
        ),
        (
            lambda: zlpr_loss(logits, SparseLabels.from_lists([[0]] * 8, num_labels=50), dim=0),
            ValueError,
            "SparseLabels run along the last axis",
        ),
        (lambda: tlpr_loss(logits, labels, torch.zeros(7)), ValueError, "`threshold` must be a number or one value per row"),
        (lambda: tlpr_loss(logits, labels, "a"), TypeError, "tlpr_loss: `threshold` must be a number or a tensor; got 'a'"),
        (lambda: tlpr_loss(logits, labels, None), TypeError, "`threshold` must be a number or a tensor; got NoneType"),
        (lambda: tlpr_loss(logits, labels, True), TypeError, "`threshold` must be a number or a tensor; got True"),
        (lambda: tlpr_loss(logits, labels, labels[:, 0] > 0), TypeError, "must be a number or a tensor; got torch.bool"),
        (lambda: TLPRLoss(initial="a"), TypeError, "TLPRLoss: `initial` must be a number; got 'a'"),
        (lambda: pairwise_loss(logits, labels, margin="a"), TypeError, "`margin` must be a number; got 'a'"),
        (lambda: pairwise_loss(logits, labels, scale=0.0), ValueError, "`scale` must be a number > 0; got 0.0"),
        (lambda: lsep_loss(logits, labels, max_pairs=0), ValueError, "`max_pairs` must be a number >= 1; got 0"),
        (lambda: lsep_loss(logits, labels, smoothing=0.1), ValueError, "`smoothing` needs all pairs"),
        (lambda: focal_loss(logits, labels, gamma=-1), ValueError, "`gamma` must be a number >= 0; got -1"),
        (lambda: asymmetric_loss(logits, labels, margin=1.0), ValueError, r"in \[0, 1\); got 1.0"),
        (lambda: dice_loss(logits, labels, epsilon=0.0), ValueError, "`epsilon` must be a number > 0"),
        (lambda: bce_loss(logits, labels, label_reduction="none"), ValueError, "one of 'mean', 'sum'; got 'none'"),
        (lambda: two_way_loss(logits, labels, reduction="none"), ValueError, "no value per row; pass batch_weight=0"),
        (lambda: two_way_loss(logits, labels, pos_temperature=0), ValueError, "`pos_temperature` must be a number > 0"),
        (
            lambda: softmax_loss(logits, torch.full((8,), 50), validate=True),
            ValueError,
            r"class numbers must lie in \[0, 50\); got 50 to 50",
        ),
        (lambda: bce_loss(LinearScores(torch.zeros(8, 2), torch.zeros(50, 2)), labels), TypeError, r"call .dense\(\)"),
        (lambda: get_loss("zlrp"), ValueError, "Did you mean 'zlpr'"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_wanted(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_values_that_do_not_count_are_not_looked_at():
    unknown = torch.full((8, 50), torch.nan)
    unknown[:, 0] = 1.0
    where = torch.zeros(8, 50, dtype=torch.bool)
    where[:, 0] = True
    value = zlpr_loss(logits, unknown, where=where, validate=True)
    assert value.item() == pytest.approx(torch.log(torch.tensor(2.0)).item())


@pytest.mark.parametrize("name", LOSSES)
def test_labels_on_another_device_are_an_error(name):
    function = LOSSES[name].function.__name__
    with pytest.raises(ValueError, match=rf"{function}: `labels` must be on the device of `logits`, cpu; got meta\. Move it"):
        LOSSES[name](logits, labels.to("meta"))


def test_lists_masks_weights_and_thresholds_on_another_device_are_errors():
    away = torch.device("meta")
    lists = SparseLabels(
        torch.zeros(3, dtype=torch.int64, device=away), torch.zeros(9, dtype=torch.int64, device=away), 50, validate=False
    )
    x = logits.clone().requires_grad_()
    for name, call in (
        ("labels", lambda: zlpr_loss(x, lists)),
        ("labels", lambda: zlpr_loss(LinearScores(torch.zeros(8, 3), torch.zeros(50, 3)), lists)),
        ("where", lambda: zlpr_loss(x, labels, where=labels.to(away))),
        ("pos_weight", lambda: zlpr_loss(x, labels, pos_weight=torch.ones(50, device=away))),
        ("sample_weight", lambda: zlpr_loss(x, labels, sample_weight=torch.ones(8, device=away))),
        ("threshold", lambda: tlpr_loss(x, labels, torch.ones(8, device=away))),
    ):
        with pytest.raises(ValueError, match=f"`{name}` must be on the device of `logits`, cpu; got meta"):
            call()


def test_one_number_may_be_on_the_cpu_as_in_torch(place):
    x, truth = place.put(logits.clone()).requires_grad_(), place.put(labels)
    for reduction in ("mean", "none"):
        got = tlpr_loss(x, truth, torch.tensor(0.5), pos_weight=torch.tensor(2.0), engine="auto", reduction=reduction)
        torch.testing.assert_close(got, tlpr_loss(x, truth, 0.5, pos_weight=2.0, reduction=reduction))
