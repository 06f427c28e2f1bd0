"""The catalog answers for every loss what the rest of the library asks."""

import inspect

import pytest
import torch

from manyhot import LOSSES, get_loss
from manyhot.losses.info import FEATURES

every_loss = pytest.mark.parametrize("name", LOSSES)
logits, labels = torch.tensor([[1.5, -0.5, 0.25]], dtype=torch.float64), torch.tensor([[1, 0, 0]])


@every_loss
def test_options_have_the_defaults_and_kinds_of_the_function(name):
    parameters = inspect.signature(LOSSES[name].function).parameters
    for option in LOSSES[name].options:
        assert option.default == parameters[option.name].default
        assert option.kind in (float, int, bool)
        assert option.summary
        assert option.parse(str(option.default)) == option.default


@every_loss
def test_every_option_of_every_loss_changes_its_value(name):
    wide = torch.linspace(-2, 3, 122, dtype=torch.float64).reshape(2, 61)
    truth = (torch.arange(122) % 3 == 0).reshape(2, 61)
    changed = {float: "0.625", int: "3"}
    for option in LOSSES[name].options:
        text = str(not option.default) if option.kind is bool else changed[option.kind]
        given = LOSSES[name].parse_options([f"{option.name}={text}"])
        assert LOSSES[name](wide, truth, **given) != LOSSES[name](wide, truth)


@every_loss
def test_every_feature_is_answered_and_refusals_give_a_reason(name):
    for feature in FEATURES:
        reason = LOSSES[name].why_not(feature)
        assert reason is None or (name in reason and not reason.endswith("."))


@every_loss
def test_a_feature_that_is_not_refused_is_taken_by_the_function(name):
    loss = LOSSES[name]
    settings = {"where": torch.tensor([[True, True, False]]), "pos_weight": 2.0, "neg_weight": 2.0, "smoothing": 0.1}
    for feature, value in settings.items():
        if loss.why_not(feature) is None:
            assert loss(logits, labels, **{feature: value}).isfinite()
    if loss.why_not("soft_labels") is None:
        assert loss(logits, torch.tensor([[0.5, 0.25, 0.0]])).isfinite()


def test_options_are_parsed_from_text_and_refused_by_name():
    assert get_loss("focal").parse_options(["gamma=2", "alpha=none"]) == {"gamma": 2.0, "alpha": None}
    assert get_loss("lsep").parse_options(["max_pairs=20"]) == {"max_pairs": 20}
    with pytest.raises(ValueError, match=r"'gama': focal has the options gamma, alpha. Did you mean 'gamma'\?"):
        get_loss("focal").parse_options(["gama=2"])
    with pytest.raises(ValueError, match="zlpr has no options"):
        get_loss("zlpr").parse_options(["gamma=2"])
    with pytest.raises(ValueError, match="`gamma` must be a number; got 'two'"):
        get_loss("focal").parse_options(["gamma=two"])
    with pytest.raises(ValueError, match="name=value, as in gamma=2; got 'gamma'"):
        get_loss("focal").parse_options(["gamma"])


def test_options_given_as_values_are_checked_by_kind():
    assert get_loss("focal").check_options({"gamma": 2, "alpha": None}) == {"gamma": 2.0, "alpha": None}
    for wrong in ("2", True, None):
        with pytest.raises(ValueError, match="`gamma` must be a number"):
            get_loss("focal").check_options({"gamma": wrong})
    with pytest.raises(ValueError, match=r"`max_pairs` must be a whole number or none; got 2.5"):
        get_loss("lsep").check_options({"max_pairs": 2.5})


@every_loss
@pytest.mark.parametrize("truth", [[1, 0, 0], [0, 1, 0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_score_that_is_no_number_is_never_hidden(name, truth, dtype):
    scores = torch.tensor([[torch.nan, 0.5, -1.0], [0.5, 1.0, -1.0]], dtype=dtype)
    assert LOSSES[name](scores, torch.tensor([truth, [1, 0, 0]])).isnan()
