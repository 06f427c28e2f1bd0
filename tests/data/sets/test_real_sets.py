"""Every real set is read from its file alone, and has the counts that its README states."""

import numpy as np
import pytest

from manyhot.data.examples import concatenate_examples
from manyhot.data.files.input_file import fingerprint
from manyhot.data.read import read_examples

# name: files, rows of each, attributes, labels, cardinality of all rows
ARFF = {
    "flags": (["flags-train", "flags-test"], [129, 65], 19, 7, 3.392),
    "emotions": (["emotions-train", "emotions-test"], [391, 202], 72, 6, 1.868),
    "scene": (["scene-train", "scene-test"], [1211, 1196], 294, 6, 1.074),
    "yeast": (["yeast-train", "yeast-test"], [1500, 917], 103, 14, 4.237),
    "birds": (["birds-train", "birds-test"], [322, 323], 260, 19, 1.014),
    "medical": (["medical-train", "medical-test"], [333, 645], 1449, 45, 1.245),
    "enron": (["enron-train", "enron-test"], [1123, 579], 1001, 53, 3.378),
    "bibtex": (["bibtex-train", "bibtex-test"], [4880, 2515], 1836, 159, 2.402),
    "cal500": (["cal500"], [502], 68, 174, 26.044),
    "corel5k": (["Corel5k-train-sparse", "Corel5k-test-sparse"], [4500, 500], 499, 374, 3.522),
    "delicious": (["delicious-train", "delicious-test"], [12920, 3185], 500, 983, 19.020),
}


def cardinality(examples):
    return round(examples.labels.counts().double().mean().item(), 3)


@pytest.mark.parametrize("name", ARFF)
def test_mulan_sets_have_the_published_counts(data_folder, name):
    files, rows, attributes, labels, mean = ARFF[name]
    parts = [read_examples(data_folder / name / f"{file}.arff.gz") for file in files]
    assert [len(part) for part in parts] == rows
    assert {part.source[0].chosen["attributes"] for part in parts} == {attributes}
    assert {part.label_names for part in parts} == {parts[0].label_names}
    assert parts[0].num_labels == labels
    both = concatenate_examples(parts)
    assert cardinality(both) == mean
    assert both.unknown is None
    assert both.num_features == len(both.feature_names) >= attributes


@pytest.mark.parametrize("name", ["flags", "birds", "medical", "yeast", "corel5k"])
def test_arff_agrees_with_liac_arff(data_folder, name):
    arff = pytest.importorskip("arff")
    import gzip

    path = data_folder / name / f"{ARFF[name][0][-1]}.arff.gz"
    ours = read_examples(path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = file.read()
    sparse = text[text.lower().index("@data") + 5 :].strip().startswith("{")
    theirs = arff.loads(text, return_type=arff.LOD if sparse else arff.DENSE)
    plain = [label.replace("\\", "") for label, _ in theirs["attributes"]]
    columns = ours.features.toarray() if sparse else ours.features
    labels = ours.labels.dense()
    for row, given in enumerate(theirs["data"]):
        cells = [given.get(place, 0) for place in range(len(plain))] if sparse else given
        values = dict(zip(plain, cells, strict=True))
        assert [float(values[label]) for label in ours.label_names] == labels[row].double().tolist()
        split = [name.rpartition("=") for name in ours.feature_names]
        wanted = [
            float(str(values[name]) == value) if name in values else float(values[whole])
            for (name, _, value), whole in zip(split, ours.feature_names, strict=True)
        ]
        np.testing.assert_allclose(columns[row], wanted, rtol=1e-6)


def test_delicious_keeps_both_spellings_of_music(data_folder):
    names = read_examples(data_folder / "delicious" / "delicious-test.arff.gz").label_names
    assert "TAG_musica" in names
    assert "TAG_m'usica" in names


def test_rows_without_labels_are_kept(data_folder):
    birds = read_examples([data_folder / "birds" / f"birds-{part}.arff.gz" for part in ("train", "test")])
    assert int((birds.labels.counts() == 0).sum()) == 294
    delicious = read_examples([data_folder / "delicious" / f"delicious-{part}.arff.gz" for part in ("train", "test")])
    assert int((delicious.labels.counts() == 0).sum()) == 14


@pytest.mark.parametrize(("part", "rows"), [("train", 43410), ("dev", 5426), ("test", 5427)])
def test_goemotions_has_names_for_its_numbers(data_folder, part, rows):
    examples = read_examples(data_folder / "goemotions" / f"{part}.tsv.gz")
    assert len(examples) == rows
    assert examples.num_labels == 28
    assert examples.label_names[0] == "admiration"
    assert len(set(examples.ids)) == rows


def test_goemotions_has_the_published_cardinality(data_folder):
    parts = [read_examples(data_folder / "goemotions" / f"{part}.tsv.gz") for part in ("train", "dev", "test")]
    assert cardinality(concatenate_examples(parts)) == 1.176


def test_cooking_is_fasttext(data_folder):
    examples = read_examples(data_folder / "cooking_stackexchange" / "cooking.stackexchange.txt.gz")
    assert (len(examples), examples.num_labels, cardinality(examples)) == (15404, 736, 2.307)
    assert examples.texts[0] == "How much does potato starch affect a cheese sauce recipe?"


def test_eurlex_joins_its_texts(data_folder):
    examples = read_examples(data_folder / "eurlex57k" / "dev.jsonl.xz")
    assert len(examples) == 6000
    assert examples.source[0].chosen["text"] == ["title", "header", "recitals"]
    assert examples.ids[0] == "31960D0712"
    assert examples.label_sets()[0] == ["1086", "1196", "2002"]
    again = examples.with_labels(examples.label_names[:100])
    assert sum(again.unseen.values()) + again.labels.indices.numel() == examples.labels.indices.numel()


def test_fingerprints_are_the_checksums(data_folder):
    listed = dict(reversed(line.split()) for line in (data_folder / "SHA256SUMS").read_text().splitlines())
    name = "emotions/emotions-train.arff.gz"
    wanted = next(value for key, value in listed.items() if key.endswith(name))
    assert fingerprint(data_folder / name) == {"emotions-train.arff.gz": wanted}
