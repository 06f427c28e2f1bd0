"""`manyhot data get`, against a local server that speaks OpenML's protocol."""

import json

from manyhot.data.read import read_examples


def test_a_set_is_written_as_json_lines_that_are_read_back(run, openml_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("data", "get", "songs", "--folder", tmp_path / "kept")
    assert done.code == 0, done.err
    assert done.out == "songs.jsonl: 3 rows, 4 features, 2 labels\n"
    assert read_examples("songs.jsonl").label_sets() == [["happy"], ["happy", "sad"], []]


def test_the_file_and_the_output_can_be_chosen(run, openml_server, tmp_path):
    target = tmp_path / "sad.jsonl.gz"
    done = run("data", "get", "songs", "--labels", "sad", "--folder", tmp_path / "kept", "--to", target, "--json")
    assert json.loads(done.out)["labels"] == 1
    assert done.err == ""
    assert read_examples(target).label_names == ("sad",)


def test_an_unknown_name_is_one_line_and_exit_code_1(run, openml_server, tmp_path):
    done = run("data", "get", "sons", "--folder", tmp_path, "--quiet")
    assert done.code == 1
    assert "No active dataset sons found" in done.err
    assert done.err.count("\n") == 1


def test_offline_is_one_line_and_exit_code_1(run, openml_server, tmp_path, monkeypatch):
    monkeypatch.setattr("manyhot.cli.commands.fetch.RETRIES", 1)
    openml_server.shutdown()
    openml_server.server_close()
    done = run("data", "get", "songs", "--folder", tmp_path, "--quiet")
    assert done.code == 1
    assert "Is there a network?" in done.err
    assert done.err.count("\n") == 1
