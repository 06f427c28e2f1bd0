"""`manyhot export`: files for other software."""

import json

import pytest


def test_weights_go_beside_the_run(run, trained):
    done = run("export", trained, "--to", "weights")
    assert done.code == 0
    folder = trained.with_name("posts-weights")
    assert {path.name for path in folder.iterdir()} == {
        "weights.safetensors",
        "weights.json",
        "vectoriser.json",
        "vectoriser.py",
        "vectoriser.mjs",
    }


def test_onnx_is_compared_on_the_rows_of_the_run_or_those_given(run, trained, posts, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed; make test-production installs it")
    done = run("export", trained, "--folder", tmp_path / "out", "--json")
    told = json.loads(done.out)
    assert (told["rows"], told["different"]) == (240, 0)
    assert (tmp_path / "out" / "model.onnx").stat().st_size > 0
    done = run("export", trained, posts / "test.jsonl", "--folder", tmp_path / "again", "--rows", "30")
    assert "Compared on 30 rows: 0 of 90 decisions differ." in done.err


def test_an_unknown_target_and_a_wrong_body_are_one_line(run, trained, posts):
    done = run("export", trained, "--to", "onx")
    assert done.code == 2
    assert "Did you mean 'onnx'?" in done.err
    done = run("export", trained, posts / "test.jsonl", "--to", "huggingface")
    assert done.code == 1
    assert "a Hugging Face folder holds an encoder" in done.err
