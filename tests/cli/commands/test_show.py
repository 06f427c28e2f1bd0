"""``manyhot show``."""

import json


def table(folder):
    rows = "".join(f"{n % 9}.{n % 10};{'small' if n % 9 < 4 else 'large'}\n" for n in range(200))
    (folder / "sizes.csv").write_text("size;tags\n" + rows)
    return folder / "sizes.csv"


def test_the_candidates_of_a_budget_are_a_table(run, tmp_path):
    assert run("train", table(tmp_path), "--run", tmp_path / "run", "--no-report", "--budget", "2s", "--quiet").code == 0
    shown = run("show", tmp_path / "run").out
    assert "{" not in shown
    kept = json.loads(run("show", tmp_path / "run", "--json").out)["candidates"]
    lines = [line for line in shown.splitlines() if line.startswith("usual ")]
    assert kept[0]["name"] == "usual"
    assert lines[0].split()[1:4] == ["the", "given", "settings"]
    assert f"{kept[0]['value']:.4f}" in lines[0]
