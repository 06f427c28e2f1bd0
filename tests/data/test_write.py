"""What is written is read back: texts, features of every kind, unknown labels."""

import json

import numpy as np
import pytest

from manyhot import SparseLabels, digit_scenes
from manyhot.data.examples import Examples
from manyhot.data.read import read_examples
from manyhot.data.write import write_examples


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.xz", "a.jsonl.bz2"])
def test_texts_survive_writing_and_reading(put, tmp_path, name):
    rows = [
        {"id": "1", "text": 'tab\t \u2028 "q" 鱼', "labels": ["b"], "unknown": ["a"]},
        {"id": "2", "text": "", "labels": ["a", "b"]},
    ]
    examples = read_examples(put("in.jsonl", "\n".join(map(json.dumps, rows))))
    write_examples(examples, tmp_path / name)
    again = read_examples(tmp_path / name)
    assert again.texts == examples.texts == [row["text"] for row in rows]
    assert again.ids == ["1", "2"]
    assert again.label_sets() == [["b"], ["a", "b"]]
    assert again.unknown.lists() == examples.unknown.lists() == [[0], []]
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


MEKA = "@relation 'r -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n@attribute f numeric\n@attribute g numeric\n@data\n"


@pytest.mark.parametrize("name", ["a.csv", "a.svm", "a.arff"])
def test_features_survive_writing_and_reading(put, tmp_path, name):
    contents = {
        "a.csv": "size,width,label_a,label_b\n1.5,2,1,0\n?,0.1,0,1\n",
        "a.svm": "a 1:0.25 3:1\nb 2:7\n",
        "a.arff": MEKA + "{0 1,2 .5}\n{1 1}\n",
    }
    examples = read_examples(put(name, contents[name]))
    write_examples(examples, tmp_path / "out.jsonl")
    again = read_examples(tmp_path / "out.jsonl")
    assert again.label_sets() == examples.label_sets()
    wanted = examples.features if isinstance(examples.features, np.ndarray) else examples.features.toarray()
    got = again.with_features(examples.feature_names or examples.num_features).features
    np.testing.assert_array_equal(got if isinstance(got, np.ndarray) else got.toarray(), wanted)


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path):
    scenes = digit_scenes(2)
    images = Examples(SparseLabels.from_dense(scenes.labels), tuple("0123456789"), images=scenes.images)
    with pytest.raises(ValueError, match="images cannot be written"):
        write_examples(images, tmp_path / "a.jsonl")
    for name, message in (("a.csv", "must end in .jsonl"), ("a.jsonl.zst", "not written")):
        with pytest.raises(ValueError, match=message):
            write_examples(images, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
