"""Training on spans: it learns, every setting does something, a killed run goes on to the same numbers."""

import json
import multiprocessing
import time
from dataclasses import replace

import pytest
import torch

from manyhot.data.spans.examples import Fragmented, SpanExamples, TextSpan
from manyhot.engines.native import lstm as native
from manyhot.training.run.bundle_folder import BundleError
from manyhot.training.spans import encoders
from manyhot.training.spans.bundle import is_span_bundle, load_span_model
from manyhot.training.spans.scoring import score_spans, tuned_threshold
from manyhot.training.spans.session import resolved
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, STEPWISE, chinese, joined, people, same_network, train_in_folder

QUICK = SpanSettings(**SMALL, epochs=8, patience=0)


@pytest.fixture(scope="module")
def model():
    return train_spans(people(), QUICK)


@pytest.mark.parametrize(
    "changes",
    [
        {"head": "global-pointer"},
        {"loss": "bce"},
        {"loss": "focal", "epochs": 12},
        {"rdrop": 0.3},
        {"body": "transformer", "learning_rate": 3e-3, "epochs": 12},
        {"tokens": "characters", "epochs": 12},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_head_loss_and_body_learns_spans_inside_spans(changes):
    trained = train_spans(people(), replace(QUICK, **changes))
    metrics = score_spans(trained, people(40, seed=1))
    assert metrics.f1() > 0.9
    assert metrics.f1(level="inner") > 0.8


def test_chinese_is_read_by_characters_and_flat():
    trained = train_spans(chinese(), QUICK)
    assert (trained.settings.body, trained.settings.decode) == ("characters", "flat")
    assert score_spans(trained, chinese(40, seed=1)).f1() > 0.95


def test_what_the_data_decides_can_be_named(model):
    assert (model.settings.body, model.settings.decode, model.settings.learning_rate) == ("words", "nested", 6e-3)
    named = resolved(SpanSettings(body="transformer", decode="flat", learning_rate=1.0, layers=3), people())
    assert (named.body, named.decode, named.learning_rate, named.layers) == ("transformer", "flat", 1.0, 3)
    with pytest.raises(ValueError, match="`tokens` must be 'words' for the body 'words'"):
        resolved(SpanSettings(body="words", tokens="characters"), people())


def test_the_same_seed_gives_the_same_model_and_leaves_the_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    short = replace(QUICK, epochs=1)
    one, two, other = (train_spans(people(), settings) for settings in (short, short, replace(short, seed=1)))
    assert torch.equal(before, torch.get_rng_state())
    assert same_network(one, two)
    assert not torch.equal(one.network.head.project.weight, other.network.head.project.weight)


def test_spans_are_found_in_characters_of_the_text(model):
    texts = ["Kim rief die Uni Bonn.", "", " \n ", "Ada traf die Uni Oslo. 😀"]
    found = model.predict(texts)
    said = [[(span.type, text[span.start : span.end]) for span in row] for text, row in zip(texts, found, strict=True)]
    assert said[0] == [("PER", "Kim"), ("ORG", "Uni Bonn"), ("LOC", "Bonn")]
    assert said[1] == said[2] == []
    assert ("PER", "Ada") in said[3]
    assert all(span.score > model.settings.threshold and 0 < span.probability < 1 for row in found for span in row)
    with pytest.raises(TypeError, match="must be a list of strings"):
        model.predict("Ada")


def test_long_texts_are_cut_into_windows_in_training_and_in_reading():
    settings = replace(QUICK, max_tokens=15, overlap=7)
    trained = train_spans(joined(people(120), 6), settings)
    long = joined(people(40, seed=2), 40)
    assert len(long) == 1
    assert score_spans(trained, long).f1() > 0.9


def test_texts_longer_than_those_of_training_are_read_in_windows_of_their_length():
    model = train_spans(joined(people(160), 2), QUICK)
    assert (model.settings.max_tokens, model.settings.overlap) == (32, 16)
    assert score_spans(model, joined(people(48, seed=2), 6)).f1() > 0.7


def test_spans_that_no_token_can_show_count_as_missed(model):
    whole = people(10, seed=4)
    lost = SpanExamples(
        whole.texts,
        [[*spans, TextSpan("PER", 1, 3)] for spans in whole.spans],
        fragmented=[[Fragmented("PER", ((0, 1), (2, 3)))] for _ in whole.texts],
    )
    before, after = score_spans(model, whole).counts(), score_spans(model, lost).counts()
    assert (before.hits, before.predicted) == (after.hits, after.predicted)
    assert after.gold == before.gold + 20


def test_a_tuned_threshold_is_the_best_there_is(model):
    held = people(40, seed=5)
    # A model of few steps is unsure enough for a threshold to matter.
    weak = train_spans(people(), replace(QUICK, epochs=2, validation=0.0))
    threshold, value = tuned_threshold(weak, held)
    tried = {
        t: score_spans(weak.with_settings(replace(weak.settings, threshold=t)), held).f1() for t in (-2, -1, 0, 1, threshold)
    }
    assert tried[threshold] == pytest.approx(value)
    assert max(tried.values()) == tried[threshold]


def test_a_bundle_reads_back_to_the_same_model(model, tmp_path):
    model.save(tmp_path)
    again = load_span_model(tmp_path)
    assert same_network(model, again)
    texts = people(5, seed=6).texts
    assert again.predict(texts) == model.predict(texts)
    assert again.describe() == model.describe()
    assert is_span_bundle(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(format="other"), "must have the format"),
        (lambda data: data.update(weights="../x.safetensors"), "must lie in the model's folder"),
        (lambda data: data.update(types=["A"]), "must be 3 different names"),
        (lambda data: data["shape"].update(hidden=17), "must be torch.float32"),
        (lambda data: data.pop("inputs"), "does not hold a whole model"),
        (lambda data: data["settings"].update(decode="auto"), "`decode` must be one of"),
    ],
)
def test_a_bundle_that_was_changed_is_refused(model, tmp_path, change, message):
    model.save(tmp_path)
    data = json.loads((tmp_path / "model.json").read_text())
    change(data)
    (tmp_path / "model.json").write_text(json.dumps(data))
    with pytest.raises(BundleError, match=message):
        load_span_model(tmp_path)


def test_a_run_that_was_killed_and_resumed_gives_the_same_model(tmp_path):
    whole = train_spans(people(60), STEPWISE)
    run = tmp_path / "run"
    process = multiprocessing.get_context("spawn").Process(target=train_in_folder, args=(run,))
    process.start()
    log = run / "metrics.jsonl"
    begun = time.monotonic()
    while time.monotonic() - begun < 120 and not (log.exists() and log.read_text().count('"epoch"') >= 3):
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode != 0, "it was over before it could be killed"
    resumed = train_spans(people(60), STEPWISE, run=run, resume=True)
    assert same_network(whole, resumed)
    with pytest.raises(ValueError, match="must be resumed with its own settings; `seed` was 0, now 1"):
        train_spans(people(60), replace(STEPWISE, seed=1), run=run, resume=True)
    with pytest.raises(ValueError, match="the data changed"):
        train_spans(people(61), STEPWISE, run=run, resume=True)


@pytest.mark.skipif(not native.available()[0], reason="the native engine was not built")
@pytest.mark.parametrize("texts", [people, chinese])
def test_a_saved_model_predicts_the_same_with_and_without_the_native_engine(texts, tmp_path, one_thread, monkeypatch):
    calls = []
    monkeypatch.setattr(encoders, "bilstm_layer", lambda *given: calls.append(0) or native.bilstm_layer(*given))
    train_spans(texts(60), STEPWISE).save(tmp_path)
    held_out, calls[:] = texts(100, seed=3).texts, []
    mine = load_span_model(tmp_path).predict(held_out, batch_size=256)
    # A hundred windows are two batches on a CPU, and each has two layers.
    assert len(calls) == 4
    monkeypatch.setattr(encoders.RecurrentEncoder, "_is_native", lambda *_: False)
    wanted = load_span_model(tmp_path).predict(held_out, batch_size=256)
    assert len(calls) == 4
    assert sum(map(len, mine)) > 100
    for one, two in zip(mine, wanted, strict=True):
        assert [span[:3] for span in one] == [span[:3] for span in two]
        assert [span.score for span in one] == pytest.approx([span.score for span in two], abs=1e-4)


def test_training_stops_when_held_out_texts_gain_no_more():
    epochs = []
    train_spans(
        people(),
        replace(QUICK, epochs=40, patience=3),
        progress=lambda event: epochs.append(event.value) if event.kind == "epoch" else None,
    )
    assert len(epochs) < 40
    assert max(epochs[-3:]) <= max(epochs[:-3])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"head": "crf"}, "`head` must be one of"),
        ({"overlap": 256}, "`overlap` must be less than `max_tokens`, 256"),
        ({"body": "pretrained"}, "`pretrained` must name an encoder"),
        ({"body": "words", "pretrained": "some-encoder"}, "`pretrained` must name an encoder with the body 'pretrained'"),
        ({"dropout": 1.0}, r"`dropout` must be a number in \[0, 1\)"),
        ({"epoch": 3}, "unknown setting 'epoch'. Did you mean 'epochs'"),
        ({"epochs": 0}, "`epochs` must be a whole number >= 1"),
    ],
)
def test_settings_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        SpanSettings.from_dict(given)


def test_naming_a_pretrained_encoder_chooses_its_body():
    assert SpanSettings(pretrained="some-encoder").body == "pretrained"


def test_texts_without_any_span_cannot_be_learned_from():
    with pytest.raises(ValueError, match="must have texts with spans; got 1 texts and no span"):
        train_spans(SpanExamples(["Ada"], [[]]))
    with pytest.raises(TypeError, match="Read a file with read_span_examples"):
        train_spans(["Ada"])


def test_a_pretrained_encoder_is_trained_saved_and_read_back_without_its_origin(tmp_path):
    transformers = pytest.importorskip("transformers", reason="pretrained bodies need transformers")
    tokenizers = pytest.importorskip("tokenizers", reason="pretrained bodies need tokenizers")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *"abcdefghijklmnopqrstuvwxyz.",
        *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
        "uni",
        "die",
    ]
    raw = tokenizers.BertWordPieceTokenizer({word: place for place, word in enumerate(words)})
    origin = tmp_path / "encoder"
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw._tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(origin)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(origin)
    scratch = ("hidden", "layers", "dropout", "word_dropout", "min_count", "tokens")
    kept = {name: value for name, value in SMALL.items() if name not in scratch}
    settings = SpanSettings(**kept | {"learning_rate": 3e-3}, body="pretrained", pretrained=str(origin), epochs=12, patience=0)
    trained = train_spans(people(), settings)
    assert trained.settings.max_tokens <= 62
    assert score_spans(trained, people(30, seed=1)).f1() > 0.9
    trained.save(tmp_path / "model")
    origin.rename(tmp_path / "gone")
    again = load_span_model(tmp_path / "model")
    texts = people(4, seed=8).texts
    assert again.predict(texts) == trained.predict(texts)
