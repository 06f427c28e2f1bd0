"""Settings: frozen, typed, described; a typo names the nearest."""

from dataclasses import FrozenInstanceError, fields

import pytest

from manyhot.training.rows.settings import TrainSettings


def test_every_setting_has_a_default_and_one_line_of_help():
    for each in fields(TrainSettings):
        text = each.metadata["help"]
        assert len(text.splitlines()) == 1, each.name
    TrainSettings()


def test_settings_are_frozen_and_go_through_a_dict():
    settings = TrainSettings(loss="bce", hidden=17)
    assert TrainSettings.from_dict(settings.to_dict()) == settings
    with pytest.raises(FrozenInstanceError):
        settings.loss = "zlpr"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"learnin_rate": 1}, "Did you mean 'learning_rate'"),
        ({"loss": "zlrp"}, "Did you mean 'zlpr'"),
        ({"metric": "micro-f1"}, "Did you mean 'micro-F1'"),
        ({"batch_size": -1}, "`batch_size` must be a whole number >= 0"),
        ({"epochs": 1.5}, "`epochs` must be a whole number"),
        ({"dropout": 1}, r"`dropout` must be a number in \[0, 1\)"),
        ({"learning_rate": 0}, "`learning_rate` must be a number > 0"),
        ({"learn_threshold": True, "loss": "bce"}, "`learn_threshold` must be left out: bce has no threshold"),
    ],
)
def test_a_wrong_setting_is_named(given, words):
    with pytest.raises(ValueError, match=words):
        TrainSettings.from_dict(given)
