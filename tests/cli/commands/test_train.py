"""`manyhot train`: run folders, settings, interruption, and what cannot be written."""

import functools
import io
import json
import os
import shutil
import signal
import subprocess

import pytest

from cli.processes import command, environment, real
from manyhot.cli.io import slow_engine
from manyhot.cli.io.config import read_config
from manyhot.cli.main import main
from manyhot.training.rows.bundle import load_model


def test_the_file_is_enough(tmp_path, posts):
    """The whole way as a user goes it, in processes of their own."""
    shutil.copy(posts / "train.jsonl", tmp_path)
    done = real("train", "train.jsonl", "--test", posts / "test.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "Done: runs/train." in done.out
    assert "micro-F1" in done.out
    assert "240 rows, 3 labels" in done.err
    asked = b'{"text": "boil the egg"}\n{"text": "flour and yeast in an iron pan"}\n'
    predicted = real("predict", "runs/train", stdin=asked, cwd=tmp_path)
    assert predicted.code == 0, predicted.err
    rows = [json.loads(line) for line in predicted.out.splitlines()]
    assert rows[0]["labels"][0] == "eggs"
    assert {"bread", "pans"} <= set(rows[1]["labels"])


def test_flags_go_before_the_settings_file_and_both_are_written_back_resolved(run, tmp_path, posts):
    config = tmp_path / "my.toml"
    config.write_text(f'[files]\ntrain = "{posts / "train.jsonl"}"\n[train]\nloss = "bce"\nseed = 7\n')
    done = run("train", "--config", config, "--seed", "5", "--run", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    written = read_config(tmp_path / "run" / "config.toml")
    assert written["train"]["loss"] == "bce"
    assert written["train"]["seed"] == 5
    assert written["read"]["text"] == ["text"]
    assert done.json()["run"] == str(tmp_path / "run")


def test_quiet_prints_no_progress(run, tmp_path, posts):
    done = run("train", posts / "train.jsonl", "--run", tmp_path / "run", "--quiet")
    assert done.code == 0
    assert done.err == ""


def test_without_the_native_engine_a_line_says_so(run, tmp_path, posts, monkeypatch):
    assert "native engine" not in run("train", posts / "train.jsonl", "--run", tmp_path / "fast").err
    monkeypatch.setattr(slow_engine, "available", lambda: (False, "no C compiler was found."))
    done = run("train", posts / "train.jsonl", "--run", tmp_path / "slow")
    assert done.code == 0
    assert "training on a CPU take longer, because the native engine cannot be used: no C compiler was found." in done.err


def test_a_folder_that_holds_something_is_left_alone(run, tmp_path, posts):
    (tmp_path / "kept.txt").write_text("mine")
    done = run("train", posts / "train.jsonl", "--run", tmp_path)
    assert done.code == 2
    assert "--run must be a new or empty folder" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.txt"]


def written(path, *texts):
    path.write_text("".join(json.dumps({"text": text, "labels": [f"l{k}"]}) + "\n" for k, text in enumerate(texts)))
    return path


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("", " ", ""), "none of the 3 texts has a word"),
        (("red", "green", "blue"), "no word occurs in 2 of the 3 texts"),
    ],
)
def test_texts_without_anything_to_learn_from_are_refused_and_leave_no_folder(run, tmp_path, texts, message):
    file, folder = written(tmp_path / "texts.jsonl", *texts), tmp_path / "runs" / "mine"
    for model in ("linear", "bag"):
        done = run("train", file, "--run", folder, "--model", model)
        assert done.code == 1
        assert message in done.err
        assert "Traceback" not in done.err
        assert not folder.exists()


def test_words_of_few_texts_count_where_they_are_asked_for(run, tmp_path):
    file = written(tmp_path / "texts.jsonl", "red", "green", "blue")
    assert run("train", file, "--run", tmp_path / "run", "--min-count", "1").code == 0


def test_rows_that_a_loss_of_one_label_is_not_made_for_are_counted(run, tmp_path):
    rows = ['{"text": "salt the water", "labels": ["salt"]}', '{"text": "slice bread", "labels": ["bread", "knife"]}'] * 20
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    done = run("train", tmp_path / "rows.jsonl", "--loss", "softmax", "--run", tmp_path / "run", "--no-report")
    assert "softmax is for one label per row and predicts one; 20 rows have none or several" in done.err


def test_one_text_is_enough(run, tmp_path):
    done = run("train", written(tmp_path / "texts.jsonl", "hello"), "--run", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    assert done.json()["run"] == str(tmp_path / "run")
    assert load_model(tmp_path / "run" / "model").predict(["hello"]).indices.tolist() == [0]


@pytest.mark.parametrize("flags", [[], ["--no-report"]])
def test_a_missing_report_is_explained_if_it_was_not_declined(run, tmp_path, flags):
    done = run("train", written(tmp_path / "texts.jsonl", "hello"), "--run", tmp_path / "run", *flags)
    assert ("No report: there were no held-out examples to measure on." in done.out) == (not flags)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--epochs", "99"], "--epochs"),
        (["--seed", "0"], "--seed"),
        (["--dropout", "0"], "--dropout"),
        (["--no-word-starts"], "--no-word-starts"),
        (["--rdrop", "0.0", "--no-tensorboard"], "--rdrop, --no-tensorboard"),
        (["--validation-file", "rows.jsonl"], "--validation-file"),
    ],
)
def test_resume_refuses_every_flag_that_is_given_whatever_its_value(run, trained, flags, named):
    done = run("train", "--resume", trained, *flags)
    assert done.code == 2
    assert f"leave out: {named}." in done.err


def test_a_run_without_a_model_says_how_to_go_on(run, tmp_path):
    (tmp_path / "config.toml").write_text("[train]\n")
    done = run("show", tmp_path)
    assert done.code == 1
    assert f"manyhot train --resume {tmp_path}" in done.err


def test_show_lists_the_reasons_for_the_model_one_by_one(run, trained):
    lines = run("show", trained).out.splitlines()
    reasons = lines[lines.index("Why this model") + 1 :]
    assert {"metric", "loss", "rule"} <= {line.split()[0] for line in reasons if line.strip()}


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_says_how_to_resume_and_resuming_gives_the_unbroken_weights(tmp_path, posts):
    slow = ["--model", "bag", "--epochs", "60", "--hidden", "1024", "--learning-rate", "0.01", "--threads", "1"]
    start = [posts / "train.jsonl", "--run"]
    process = subprocess.Popen(
        command("train", *start, tmp_path / "broken", *slow, "--batch-size", "4"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
        # Tests that run behind a shell's & ignore the signal, and so would what they start.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    for line in process.stderr:
        if line.startswith("epoch 2/"):
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"Continue with: manyhot train --resume {tmp_path / 'broken'}" in err
    assert "Traceback" not in err
    assert main(["train", "--resume", str(tmp_path / "broken"), "--quiet"]) == 0
    assert main(["train", *map(str, start), str(tmp_path / "whole"), *slow, "--batch-size", "4", "--quiet"]) == 0
    weights = [load_model(tmp_path / name / "model").logits(["boil the egg", "iron pan"]) for name in ("broken", "whole")]
    assert weights[0].equal(weights[1])


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_run_is_resumed(tmp_path, posts):
    process = subprocess.Popen(
        command("train", posts / "train.jsonl", "--run", tmp_path / "run", "--model", "bag", "--batch-size", "2",
                "--epochs", "8"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )  # fmt: skip
    for line in process.stderr:
        if line.startswith("epoch 2/"):
            break
    process.kill()
    process.wait()
    process.stderr.close()
    assert main(["train", "--resume", str(tmp_path / "run"), "--quiet"]) == 0
    assert main(["show", str(tmp_path / "run"), "--json"]) == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes into read-only folders")
def test_a_read_only_folder_is_one_line(run, tmp_path, posts):
    tmp_path.chmod(0o500)
    done = run("train", posts / "train.jsonl", "--run", tmp_path / "run")
    tmp_path.chmod(0o700)
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("manyhot: ")


def test_a_folder_that_cannot_be_made_is_one_line(run, tmp_path, posts):
    (tmp_path / "file").write_text("")
    done = run("train", posts / "train.jsonl", "--run", tmp_path / "file" / "run", "--quiet")
    assert done.code == 1
    assert done.err.count("\n") == 1


def test_training_from_the_standard_input_names_the_run_so(run, tmp_path, posts, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((posts / "train.jsonl").read_bytes())))
    done = run("train", "-", "--epochs", "2")
    assert done.code == 0, done.err
    assert (tmp_path / "runs" / "stdin" / "config.toml").is_file()
