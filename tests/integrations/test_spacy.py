import subprocess
import sys

import numpy as np
import pytest
import spacy
from spacy.tokens import DocBin
from spacy.training import Example

from integrations import tiny

BOW = {"@architectures": "spacy.TextCatBOW.v3", "exclusive_classes": False, "ngram_size": 1, "no_output_layer": False}
SMALL = {**BOW, "length": 1024}


def examples_of(nlp, texts, **missing):
    found = []
    for text, own in zip(texts, tiny.label_sets(texts), strict=True):
        cats = {name: float(name in own) for name in tiny.NAMES if name not in missing.get("without", ())}
        found.append(Example.from_dict(nlp.make_doc(text), {"cats": cats}))
    return found


def trained(steps=30, **settings):
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    component = nlp.add_pipe("manyhot_textcat", config={"model": SMALL, **settings})
    for name in tiny.NAMES:
        component.add_label(name)
    examples = examples_of(nlp, tiny.make_texts(100))
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.1
    losses = [nlp.update(examples, sgd=optimizer)["manyhot_textcat"] for _ in range(steps)]
    return nlp, losses


def test_the_factory_comes_by_its_entry_point_and_learns():
    nlp, losses = trained()
    assert losses[-1] < 0.3 * losses[0]
    scores = nlp.evaluate(examples_of(nlp, tiny.make_texts(100, seed=1)))
    assert scores["cats_macro_f"] > 0.95


def test_the_model_gives_scores_not_probabilities():
    nlp, _ = trained()
    scores = nlp.get_pipe("manyhot_textcat").scores([nlp.make_doc(text) for text in tiny.make_texts(50)])
    assert scores.min() < -0.5
    assert scores.max() > 1.2
    assert (nlp(tiny.make_texts(1)[0]).cats["meat"] > 0.5) == (scores[0, 3] > 0)


def test_a_missing_category_is_unknown():
    nlp = spacy.blank("en")
    component = nlp.add_pipe("manyhot_textcat", config={"model": SMALL})
    for name in tiny.NAMES:
        component.add_label(name)
    examples = examples_of(nlp, tiny.make_texts(20), without=("meat",))
    nlp.initialize(lambda: examples_of(nlp, tiny.make_texts(20)))
    scores = np.random.default_rng(0).normal(size=(20, 4)).astype("f")
    _, gradient = component.get_loss(examples, scores)
    assert (gradient[:, 3] == 0).all()
    assert (gradient[:, :3] != 0).all()


def test_thresholds_are_tuned_and_saved_with_the_component(tmp_path):
    nlp, _ = trained(steps=3)
    held_out = examples_of(nlp, tiny.make_texts(200, seed=2))
    component = nlp.get_pipe("manyhot_textcat")
    layer = component.model.get_ref("output_layer")
    layer.set_param("b", layer.get_param("b") - 2)  # nearly nothing is predicted any more
    before = component.predict([eg.predicted for eg in held_out])
    tuned = component.tune(held_out, objective="macro-F1")
    after = component.predict([eg.predicted for eg in held_out])
    assert tuned.helps
    assert not np.array_equal(before > 0.5, after > 0.5)
    nlp.to_disk(tmp_path)
    again = spacy.load(tmp_path)
    np.testing.assert_allclose(again.get_pipe("manyhot_textcat").predict([eg.predicted for eg in held_out]), after, rtol=1e-6)
    assert again.get_pipe("manyhot_textcat").cfg["thresholds"] == pytest.approx(component.cfg["thresholds"])
    data = component.to_bytes()
    component.set_thresholds(5.0)
    component.from_bytes(data)
    np.testing.assert_allclose(component.predict([eg.predicted for eg in held_out]), after, rtol=1e-6)


def test_empty_documents_have_no_label():
    nlp, _ = trained(steps=1)
    assert max(nlp("").cats.values()) < 1e-6


def test_span_categoriser_learns_and_is_saved(tmp_path):
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    component = nlp.add_pipe("manyhot_spancat")
    component.add_label("food")
    examples = []
    for text in tiny.make_texts(60):
        doc = nlp.make_doc(text)
        spans = [(token.idx, token.idx + len(token), "food") for token in doc if token.text in ("honey", "jam")]
        examples.append(Example.from_dict(doc, {"spans": {"sc": spans}}))
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    losses = [nlp.update(examples, sgd=optimizer)["manyhot_spancat"] for _ in range(15)]
    assert losses[-1] < 0.3 * losses[0]
    assert nlp.evaluate(examples)["spans_sc_f"] > 0.9
    component.set_thresholds(50.0)
    nlp.to_disk(tmp_path)
    assert len(spacy.load(tmp_path)("egg honey jam").spans["sc"]) == 0


CONFIG = """
[paths]
train = null
dev = null

[nlp]
lang = "en"
pipeline = ["manyhot_textcat"]

[components]

[components.manyhot_textcat]
factory = "manyhot_textcat"

[components.manyhot_textcat.model]
@architectures = "spacy.TextCatBOW.v3"
exclusive_classes = false
ngram_size = 1
no_output_layer = false
length = 1024

[corpora]

[corpora.train]
@readers = "spacy.Corpus.v1"
path = ${paths.train}

[corpora.dev]
@readers = "spacy.Corpus.v1"
path = ${paths.dev}

[training]
max_steps = 30
eval_frequency = 15

[training.optimizer]
@optimizers = "Adam.v1"
learn_rate = 0.1

[training.score_weights]
cats_macro_f = 1.0
"""


@pytest.mark.slow
def test_spacy_train_takes_a_config(tmp_path):
    nlp = spacy.blank("en")
    for part, seed in (("train", 0), ("dev", 1)):
        DocBin(docs=[eg.reference for eg in examples_of(nlp, tiny.make_texts(100, seed=seed))], store_user_data=True).to_disk(
            tmp_path / f"{part}.spacy"
        )
    (tmp_path / "part.cfg").write_text(CONFIG)
    spacy_command = [sys.executable, "-m", "spacy"]
    fill = [*spacy_command, "init", "fill-config", str(tmp_path / "part.cfg"), str(tmp_path / "config.cfg")]
    done = subprocess.run(fill, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    command = [*spacy_command, "train", str(tmp_path / "config.cfg"), "--output", str(tmp_path / "out")]
    command += ["--paths.train", str(tmp_path / "train.spacy"), "--paths.dev", str(tmp_path / "dev.spacy")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    best = spacy.load(tmp_path / "out" / "model-best")
    assert best.meta["performance"]["cats_macro_f"] > 0.9


def test_wrong_uses_are_named():
    nlp, _ = trained(steps=1)
    component = nlp.get_pipe("manyhot_textcat")
    with pytest.raises(ValueError, match="one per label, 4; got 2"):
        component.set_thresholds([0.0, 1.0])
    wrong = Example.from_dict(nlp.make_doc("egg"), {"cats": {"meat": -100.0}})
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]; got -100.0 for 'meat'"):
        component.get_loss([wrong], np.zeros((1, 4), "f"))
    with pytest.raises(ValueError, match="must be multi-label"):
        spacy.blank("en").add_pipe("manyhot_textcat", config={"model": {**SMALL, "exclusive_classes": True}})
