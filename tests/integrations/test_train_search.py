"""`manyhot train --search`: the best settings train the model, and a kill at any point changes nothing."""

import json
import subprocess

import optuna
import pytest

from cli.conftest import write_posts
from cli.processes import command, environment
from manyhot.cli.io.config import read_config
from manyhot.cli.main import main
from manyhot.training.rows.bundle import load_model

SPACE = ["--search-space", "smoothing=0..0.2", "--search-space", "loss=zlpr,bce", "--search-space", "ngrams=1..2"]
FLAGS = [*SPACE, "--search", "5", "--search-metric", "macro-F1", "--epochs", "3", "--no-report"]


@pytest.fixture
def posts(tmp_path):
    write_posts(tmp_path / "posts.jsonl", 90, 0)
    return tmp_path / "posts.jsonl"


def trials_of(run):
    """The finished trials of a study: what was tried and what came out."""
    backend = optuna.storages.journal.JournalFileBackend(str(run / "search" / "study.log"))
    study = optuna.load_study(study_name="manyhot", storage=optuna.storages.JournalStorage(backend))
    return [(trial.params, trial.value) for trial in study.trials if trial.value is not None]


def search(*arguments):
    return main(["train", *map(str, arguments), "--quiet"])


def test_the_best_settings_train_the_model(posts, tmp_path, capfd):
    assert main(["train", str(posts), "--run", str(tmp_path / "run"), *FLAGS, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    tried = trials_of(tmp_path / "run")
    assert len(tried) == 5
    best = max(value for _, value in tried)
    assert (told["search"]["value"], told["search"]["metric"], told["search"]["trials"]) == (best, "macro-F1", 5)
    settings = load_model(tmp_path / "run" / "model").settings
    params = next(params for params, value in tried if value == best)
    assert {name: getattr(settings, name) for name in params} == params
    config = read_config(tmp_path / "run" / "config.toml")
    assert config["search"] == {"trials": 5, "space": SPACE[1::2], "metric": "macro-F1"}
    assert search("--config", tmp_path / "run" / "config.toml", "--run", tmp_path / "again") == 0
    assert trials_of(tmp_path / "again") == tried


@pytest.mark.slow
@pytest.mark.parametrize("line", ["trial 2/", "best of 5"])
def test_a_search_that_was_killed_is_resumed_to_the_same_model(posts, tmp_path, line):
    killed = subprocess.Popen(
        command("train", posts, "--run", tmp_path / "killed", *FLAGS),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    for told in killed.stderr:
        if told.startswith(line):
            break
    killed.kill()
    killed.wait()
    killed.stderr.close()
    finished = len(trials_of(tmp_path / "killed"))
    assert finished >= (2 if line.startswith("trial") else 5)
    assert search("--resume", tmp_path / "killed") == 0
    assert search(posts, "--run", tmp_path / "whole", *FLAGS) == 0
    assert trials_of(tmp_path / "killed") == trials_of(tmp_path / "whole")
    texts = ["boil the egg", "flour and yeast in an iron pan"]
    logits = [load_model(tmp_path / name / "model").logits(texts) for name in ("killed", "whole")]
    assert logits[0].equal(logits[1])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--search", "0"], "--search must be a whole number >= 1; got 0"),
        (["--search-space", "smoothing=0..1"], "need --search N"),
        (["--search", "2", "--search-space", "smoothing=1..0"], "--search-space must be NAME=LOW..HIGH"),
        (["--search", "2", "--search-space", "smooting=0..1"], "unknown setting 'smooting'. Did you mean 'smoothing'"),
        (["--search", "2", "--search-space", "loss=zlpr,zplr"], "--loss must be one of"),
        (["--search", "2", "--search-metric", "F2"], "F2"),
        (["--search", "2", "--smoothing", "0.1", "--search-space", "smoothing=0..1"], "Leave out --smoothing"),
        (["--search", "2", "--task", "spans"], "a run on spans has no search"),
    ],
)
def test_a_search_that_cannot_be_is_one_line_and_leaves_no_folder(posts, tmp_path, capfd, flags, message):
    assert search(posts, "--run", tmp_path / "run", *flags) in (1, 2)
    error = capfd.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()
