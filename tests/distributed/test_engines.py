"""The recipes of docs/scale.md, run by the real engines: what Ray Data and Spark give is what the model gives here."""

import os
import re
import sys
from pathlib import Path

import pytest

from manyhot import Predictor, TrainSettings, train
from training.problems import text_examples

# Other packages warn about each other; manyhot's own warnings are errors as everywhere.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.filterwarnings("error:::manyhot")]
PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def recipe(name):
    """The code block of the page under the heading ``name``."""
    section = PAGE.read_text(encoding="utf-8").split(f"### {name}\n", 1)[1]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """A model's folder, texts, and the labels that the model gives them here."""
    folder = tmp_path_factory.mktemp("model")
    examples = text_examples(80)
    train(examples, TrainSettings(epochs=2, threads=1)).save(folder)
    texts = list(examples.texts)
    return str(folder), texts, Predictor(folder, scores=True)(texts)


def test_ray_data(problem):
    import ray

    folder, texts, wanted = problem
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        rows = ray.data.from_items([{"row": row, "text": text} for row, text in enumerate(texts)], override_num_blocks=4)
        names = {"rows": rows, "folder": folder}
        exec(recipe("Ray Data"), names)
        found = sorted(names["labelled"].take_all(), key=lambda row: row["row"])
    finally:
        ray.shutdown()
    assert [list(row["labels"]) for row in found] == wanted["labels"]
    assert [row["text"] for row in found] == texts


def test_spark(problem, monkeypatch):
    from pyspark.sql import SparkSession

    folder, texts, wanted = problem
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = spark.createDataFrame(list(enumerate(texts)), ["row", "text"]).repartition(3)
        names = {"rows": rows, "folder": folder}
        exec(recipe("Spark"), names)
        found = sorted(names["labelled"].collect(), key=lambda row: row["row"])
    finally:
        spark.stop()
    assert [list(row["predicted"]["labels"]) for row in found] == wanted["labels"]
    for row, scores in zip(found, wanted["scores"], strict=True):
        assert list(row["predicted"]["scores"]) == pytest.approx(scores, rel=1e-5)
