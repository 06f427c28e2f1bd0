import pytest

import manyhot.integrations.optuna as ours
from manyhot import Examples, SparseLabels, TrainSettings
from manyhot.integrations.optuna import search_settings

TEXTS = ["salt the water", "slice the bread", "bread with salt", "boil the water", "salt"] * 16
SPACE = {"smoothing": (0.0, 0.2), "learning_rate": (1e-3, 1.0, "log"), "loss": ["zlpr", "bce"], "ngrams": (1, 2)}
SETTINGS = TrainSettings(epochs=2, tune="none")


@pytest.fixture
def rows():
    labels = SparseLabels.from_lists([[0], [1], [0, 1], [], [0]] * 16, num_labels=2)
    return Examples(labels, ("salt", "bread"), texts=TEXTS)


def searched(rows, folder, trials, seen=None):
    progress = None if seen is None else lambda number, tried, value: seen.append((number, tried, value))
    return search_settings(rows, folder, trials=trials, settings=SETTINGS, space=SPACE, progress=progress)


def test_a_search_that_was_killed_goes_the_way_of_one_that_was_not(rows, tmp_path, monkeypatch):
    whole, parts = [], []
    best = searched(rows, tmp_path / "whole", 12, whole)
    with monkeypatch.context() as patch:
        calls = iter(range(100))

        def killed(*given, **settings):
            if next(calls) == 7:
                raise KeyboardInterrupt
            return train(*given, **settings)

        train = ours.train
        patch.setattr(ours, "train", killed)
        with pytest.raises(KeyboardInterrupt):
            searched(rows, tmp_path / "parts", 12, parts)
    assert len(parts) == 7
    resumed = searched(rows, tmp_path / "parts", 12, parts)
    assert parts == whole
    assert resumed == best
    assert resumed.trials == 12
    assert searched(rows, tmp_path / "parts", 12) == best, "a finished search trains nothing more"


def test_the_best_settings_are_ready_for_training(rows, tmp_path):
    seen = []
    found = searched(rows, tmp_path, 3, seen)
    assert found.value == max(value for *_, value in seen)
    best = next(tried for _, tried, value in seen if value == found.value)
    assert {name: getattr(found.settings, name) for name in best} == best
    assert found.settings.epochs == 2


def test_wrong_uses_are_named(rows, tmp_path):
    with pytest.raises(ValueError, match=r"unknown setting 'smooting'\. Did you mean 'smoothing'"):
        search_settings(rows, tmp_path, space={"smooting": (0, 1)})
    searched(rows, tmp_path / "study", 1)
    with pytest.raises(ValueError, match="started with other settings"):
        search_settings(rows, tmp_path / "study", trials=2, settings=SETTINGS, space={"smoothing": (0.0, 0.1)})
