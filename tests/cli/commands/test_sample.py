"""`manyhot sample`: rows to label next."""

import json


def test_uncertain_rows_come_first(run, trained, tmp_path):
    path = tmp_path / "pool.jsonl"
    texts = ["boil the egg yolk egg"] * 20 + ["how to the best", "egg pan dough"] + ["iron steel pan pan"] * 20
    path.write_text("".join(json.dumps({"id": f"p{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    done = run("sample", trained, path, "--rows", "2", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert len(found) == 2
    assert found[0]["uncertainty"] >= found[1]["uncertainty"]
    assert found[0]["text"] != found[1]["text"]
    assert set(found[0]["labels"]) == {"eggs", "pans", "bread"}
    assert "uncertain labels" in run("sample", trained, path, "--rows", "3").out
