"""What `manyhot inspect` shows."""

import pytest


def test_what_was_understood_is_shown_with_bars(run, tmp_path, monkeypatch):
    path = tmp_path / "posts.csv"
    path.write_text(
        "text,tags\nhow to boil eggs,eggs;boiling\nwhich pan is best,pans;eggs\nfry the eggs,eggs;boiling\nhi ho,eggs\n"
    )
    done = run("inspect", path)
    assert done.code == 0
    assert "csv" in done.out
    assert "1.750 on average" in done.out
    assert "texts: 3.2 words on average, median 3.5, at most 4" in done.out
    bars = {line.split()[0]: line.count("█") for line in done.out.splitlines() if "%" in line}
    assert bars["eggs"] == 2 * bars["boiling"] == 4 * bars["pans"] > 0
    assert "1 label occurs only once" in done.out


def test_many_labels_are_summed_up(run, tmp_path):
    path = tmp_path / "many.jsonl"
    path.write_text("".join(f'{{"text": "word {n}", "labels": ["label{n}"]}}\n' for n in range(50)))
    out = run("inspect", path).out
    assert "and 30 more labels with 1 to 1 rows" in out


def test_json_holds_the_same(run, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a b", "labels": ["x"]}\n{"text": "c", "labels": []}\n')
    found = run("inspect", path, "--json").json()
    assert found["rows"] == 2
    assert found["labels"]["counts"] == {"x": 1}
    assert found["files"][0]["format"] == "jsonl"


def test_problems_are_listed_with_their_place_and_the_exit_code_is_1(run, tmp_path):
    path = tmp_path / "mixed.jsonl"
    path.write_text('{"text": "a b", "labels": ["x"]}\n' + '{"text": 3, "labels": ["x"]}\n' * 12)
    done = run("inspect", path)
    assert done.code == 1
    assert "Problems (the first 10 of 12)" in done.out
    assert "line 2, column 'text'" in done.out
    assert done.out.count("column 'text'") == 10


def test_leaks_between_train_and_test_are_told(run, tmp_path):
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    train.write_text('{"text": "a cat", "labels": ["cat"]}\n{"text": "a dog", "labels": ["dog"]}\n')
    test.write_text('{"text": "a cat", "labels": ["cat"]}\n{"text": "a bird", "labels": ["bird"]}\n')
    out = run("inspect", train, "--test", test).out
    assert "1 of 2 test rows is also in the training files." in out
    assert "1 label occurs only in the test files." in out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b'{"text": "a \xff b", "labels": []}\n', "must be UTF-8; got the byte 0xff"),
        (b"\xff\xfet\x00e\x00", "UTF-16"),
        (b"just words\nand more\n", "format was not recognised"),
    ],
)
@pytest.mark.parametrize("verb", ["inspect", "train"])
def test_a_file_that_cannot_be_read_is_one_line_and_exit_code_1(run, tmp_path, monkeypatch, verb, content, said):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ("data" if b"just" in content else "data.jsonl")
    path.write_bytes(content)
    done = run(verb, path)
    assert done.code == 1
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_columns_can_be_named(run, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("title,a,b,n\nsome words,1,0,3\nother words,0,1,4\n")
    found = run("inspect", path, "--labels", "a", "--labels", "b", "--text", "title", "--json").json()
    assert found["labels"]["counts"] == {"a": 1, "b": 1}
    assert found["kind"] == "texts"


def test_a_column_that_is_not_there_is_told_with_the_nearest(run, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("title,tags\nsome words,x;y\n")
    done = run("inspect", path, "--text", "titel")
    assert done.code == 1
    assert "Did you mean 'title'?" in done.err


def test_json_too_names_the_flags_as_they_are_typed(run, tmp_path):
    (tmp_path / "rows.svm").write_text("a 1:1 2:0.5\nb 2:1\n" * 5)
    (remark,) = [each for each in run("inspect", tmp_path / "rows.svm", "--json").json()["remarks"] if "counted" in each]
    assert "--index-base 0" in remark
    (tmp_path / "rows.csv").write_text("one,two\n1,2\n3,4\n")
    done = run("inspect", tmp_path / "rows.csv", "--json")
    assert done.code == 1
    (problem,) = done.json()["problems"]
    assert "--labels" in problem["message"]
    assert "--no-header" in problem["message"]
