"""`manyhot demo`, small."""

import json


def test_both_losses_both_variants_and_both_rules_are_measured(run, tmp_path):
    done = run("demo", "--rows", "100", "--epochs", "1", "--seeds", "1", "--folder", tmp_path / "demo", "--json")
    assert done.code == 0, done.err
    told = done.json()
    seen = {(each["variant"], each["loss"], each["rule"]) for each in told["outcomes"]}
    wanted = {(v, loss, r) for v in ("balanced", "imbalanced") for loss in ("zlpr", "bce") for r in ("natural", "tuned")}
    assert seen == wanted
    assert json.loads((tmp_path / "demo" / "results.json").read_text()) == told["outcomes"]
    assert all(0 <= value <= 1 for each in told["outcomes"] for value in each["scores"].values())


def test_the_table_fits_80_columns_and_tells_the_spread(run, tmp_path):
    done = run("demo", "--rows", "100", "--epochs", "1", "--seeds", "2", "--folder", tmp_path, "--quiet")
    assert done.err == ""
    assert done.out.count(" ± ") == 8 * 3 + 1
    assert max(len(line.rstrip()) for line in done.out.splitlines()[:-1]) <= 80
