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
    rates = {(each["variant"], each["loss"]): each["learning_rate"] for each in told["outcomes"]}
    assert set(rates.values()) <= {0.004, 0.01}
    assert all(0 <= value <= 1 for each in told["outcomes"] for value in each["scores"].values())


def test_the_table_fits_80_columns_and_tells_the_spread(run, tmp_path):
    done = run("demo", "--rows", "100", "--epochs", "1", "--seeds", "2", "--folder", tmp_path, "--quiet")
    assert done.err == ""
    assert done.out.count(" ± ") == 8 * 3 + 1
    assert max(len(line.rstrip()) for line in done.out.splitlines()[:-2]) <= 80


def test_the_rate_of_each_loss_is_chosen_by_its_own_trials_and_told(run, tmp_path):
    done = run("demo", "--rows", "100", "--epochs", "1", "--seeds", "1", "--folder", tmp_path)
    lines = [line for line in done.err.splitlines() if "learning rate" in line and "validation macro-F1 by rate" in line]
    assert [line.split(":")[0] for line in lines] == ["balanced zlpr", "balanced bce", "imbalanced zlpr", "imbalanced bce"]
    for line in lines:
        tried = dict(part.split(": ") for part in line.split("by rate ")[1].rstrip(")").split(", "))
        chosen = line.split("learning rate ")[1].split(" ")[0]
        assert float(tried[chosen]) == max(map(float, tried.values()))
