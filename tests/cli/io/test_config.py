"""Settings files are read, checked and written back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhot.cli.io.config import read_config, toml_value, write_config
from manyhot.training.rows.settings import TrainSettings

VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda part: st.lists(part, max_size=3),
    max_leaves=5,
)


@given(VALUES)
def test_every_value_is_read_back_as_it_was_written(value):
    import tomllib

    assert tomllib.loads(f"key = {toml_value(value)}") == {"key": value}


def test_resolved_settings_are_read_back(tmp_path):
    tables = {
        "files": {"train": [str(tmp_path / "a.csv")]},
        "read": {"text": ["title"], "delimiter": "\t"},
        "train": TrainSettings(loss="bce", learning_rate=0.1).to_dict(),
    }
    write_config(tmp_path / "config.toml", tables)
    found = read_config(tmp_path / "config.toml")
    assert found["files"] == tables["files"]
    assert found["read"] == tables["read"]
    assert TrainSettings.from_dict(found["train"]) == TrainSettings(loss="bce", learning_rate=0.1)


def test_files_are_taken_from_the_folder_of_the_settings_file(tmp_path):
    (tmp_path / "my.toml").write_text('[files]\ntrain = "a.csv"\n')
    assert read_config(tmp_path / "my.toml")["files"]["train"] == [str(tmp_path / "a.csv")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[train]\nepoch = 3\n", "unknown key 'epoch' in [train]. Did you mean 'epochs'?"),
        ("[trian]\nepochs = 3\n", "Did you mean 'train'?"),
        ("epochs = 3\n", "It belongs under [train]."),
        ("[read]\nseperator = ';'\n", "Did you mean 'separator'?"),
        ("[files]\ntrain = 3\n", "must be a file or a list of files"),
        ("[train]\nepochs = 'three'\n", "--epochs must be a whole number"),
        ("[train\n", "must be TOML"),
        ("train = 3\n", "[train] must be a table"),
    ],
)
def test_a_mistake_in_a_settings_file_is_wrong_usage(run, tmp_path, text, said):
    (tmp_path / "my.toml").write_text(text)
    done = run("train", "a.csv", "--config", tmp_path / "my.toml")
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
