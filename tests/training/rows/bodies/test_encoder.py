"""Fine-tuned encoders: a tiny one with random weights learns, is saved without pickles, and what is wrong with one is said."""

import json
import sys
from dataclasses import replace

import pytest
import torch

from manyhot.cli.main import main
from manyhot.evaluation import evaluate
from manyhot.training.rows.bodies.encoder import make_encoder, token_parts
from manyhot.training.rows.bundle import load_model
from manyhot.training.rows.inputs.tokens import TokenInputs, TokenRows
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from manyhot.training.run.bundle_folder import BundleError
from training.problems import WORDS, feature_examples, same_weights, text_examples

transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the extra `text` is not installed")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def save_tokenizer(folder, words=(*WORDS, *(f"noise{n}" for n in range(40)))):
    """Words as tokens, in the form that encoders are published with."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    fast.save_pretrained(folder)
    return len(vocabulary)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The folder of a tiny BERT with random weights."""
    folder = tmp_path_factory.mktemp("encoder")
    size = save_tokenizer(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.BertConfig(vocab_size=size, max_position_embeddings=24, **TINY)
        transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def settings(encoder):
    return TrainSettings(
        model="encoder", encoder=str(encoder), epochs=10, batch_size=16, learning_rate=3e-3, dropout=0.1, threads=1
    )


@pytest.fixture(scope="module")
def trained(settings):
    return train(text_examples(), settings)


def test_an_encoder_learns_what_can_be_learned(trained):
    test = text_examples(seed=1)
    assert trained.shape["body"] == "encoder"
    assert evaluate(trained, test)["micro-F1"] > 0.9
    torch.testing.assert_close(trained.logits(test, batch_size=7), trained.logits(test), rtol=1e-4, atol=1e-4)


def test_the_folder_is_enough_and_the_rate_suits_fine_tuning(encoder):
    model = train(text_examples(40), TrainSettings(encoder=str(encoder), epochs=1, threads=1))
    assert model.settings.model == "encoder"
    assert model.about["learning_rate"] == 5e-5
    assert model.settings.pos_weight is None


def test_a_bundle_holds_json_and_safetensors_alone_and_needs_the_first_folder_no_more(trained, tmp_path):
    trained.save(tmp_path)
    suffixes = sorted(path.suffix for path in tmp_path.iterdir())
    assert suffixes == [".json", ".json", ".json", ".safetensors"]
    described = json.loads((tmp_path / "model.json").read_text())
    assert set(described["documents"]) == {"config", "tokenizer"}
    assert "pretrained" not in described["shape"]
    state = torch.get_rng_state()
    loaded = load_model(tmp_path)
    assert torch.equal(state, torch.get_rng_state())
    examples = text_examples(30, seed=2)
    assert same_weights(loaded, trained)
    assert torch.equal(loaded.logits(examples), trained.logits(examples))
    assert torch.equal(loaded.probabilities(examples), trained.probabilities(examples))
    loaded.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("name", ["tokenizer", "config"])
def test_a_document_that_is_cut_off_missing_or_elsewhere_is_refused(trained, tmp_path, name):
    trained.save(tmp_path / "model")
    folder = tmp_path / "model"
    described = json.loads((folder / "model.json").read_text())
    path = folder / described["documents"][name]
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    with pytest.raises(BundleError, match="is missing, cut off or changed"):
        load_model(folder)
    path.unlink()
    with pytest.raises(BundleError, match="is missing, cut off or changed"):
        load_model(folder)
    outside = tmp_path / path.name
    outside.write_bytes(content)
    described["documents"][name] = f"../{path.name}"
    (folder / "model.json").write_text(json.dumps(described))
    with pytest.raises(BundleError, match="must lie in the model's folder"):
        load_model(folder)


def test_a_wrong_tensor_of_an_encoder_is_named(trained, tmp_path):
    trained.save(tmp_path)
    path = tmp_path / "model.json"
    described = json.loads(path.read_text())
    shape = {**trained.shape, "config": {**trained.shape["config"], "intermediate_size": 48}}
    replaced = type(trained)(
        trained.body, shape, trained.inputs, trained.label_names, trained.settings, link=trained.link, rule=trained.rule
    )
    replaced.save(tmp_path)
    assert json.loads(path.read_text())["documents"]["config"] != described["documents"]["config"]
    with pytest.raises(BundleError, match=r"must be torch.float32 \[48"):
        load_model(tmp_path)


def test_code_and_kernels_that_a_configuration_names_are_left_out(trained):
    hostile = {"auto_map": {"AutoModel": "own.Model"}, "attn_implementation": "someone/kernel", "_name_or_path": "x/y"}
    shape = {**trained.shape, "config": {**trained.shape["config"], **hostile}}
    config = make_encoder(shape).encoder.config
    assert not hasattr(config, "auto_map")
    assert config._attn_implementation in ("sdpa", "eager")


def test_long_texts_are_cut_at_what_the_encoder_reads(encoder):
    long = [" ".join(["salt"] * 500), "salt"]
    inputs, _ = TokenInputs.fit(text_examples(5), TrainSettings(encoder=str(encoder), max_tokens=256))
    rows = inputs.rows(long)
    assert rows.lengths.tolist() == [24, 3]
    assert rows.ids[23] == 3, "the mark at the end stays"
    shorter, _ = TokenInputs.fit(text_examples(5), TrainSettings(encoder=str(encoder), max_tokens=6))
    assert shorter.rows(long).lengths.tolist() == [6, 3]


def test_padding_changes_nothing(trained):
    body = trained.body
    short, long = trained.inputs.rows(["salt"]), trained.inputs.rows(["salt", "noise1 " * 20])
    with torch.inference_mode():
        torch.testing.assert_close(body(short)[0], body(long)[0], rtol=1e-5, atol=1e-5)


def test_rows_are_cut_into_parts_that_fit(trained, monkeypatch):
    assert token_parts([1, 2, 2, 5, 9], 6) == [slice(0, 3), slice(3, 4), slice(4, 5)]
    assert token_parts([3], 1) == [slice(0, 1)]
    rows = trained.inputs.rows(text_examples(20).texts)
    body = trained.body
    whole = body(rows)
    whole.sum().backward()
    wanted = body.head.weight.grad.clone(), body.encoder.embeddings.word_embeddings.weight.grad.clone()
    body.zero_grad()
    monkeypatch.setattr("manyhot.training.rows.bodies.encoder.TOKENS_ON_CPU", 30)
    parts = body(rows)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)
    parts.sum().backward()
    torch.testing.assert_close(body.head.weight.grad, wanted[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(body.encoder.embeddings.word_embeddings.weight.grad, wanted[1], rtol=1e-4, atol=1e-4)
    body.zero_grad(set_to_none=True)


def test_rows_taken_out_of_rows_keep_their_tokens():
    rows = TokenRows(torch.arange(10, dtype=torch.int32), torch.tensor([0, 3, 3, 4, 10]), 10)
    picked = rows[torch.tensor([3, 0, 1])]
    assert picked.ids.tolist() == [4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert picked.offsets.tolist() == [0, 6, 9, 9]
    assert rows[1:3].ids.tolist() == [3]


@pytest.mark.parametrize(
    "changed",
    [{"rdrop": 0.5}, {"loss": "bce"}, {"smoothing": 0.05}, {"learn_threshold": True}, {"calibrate": "platt"}],
    ids=str,
)
def test_every_setting_of_the_loss_trains_an_encoder(settings, changed):
    model = train(text_examples(60), replace(settings, epochs=1, **changed))
    assert bool(model.logits(["salt"]).isfinite().all())


def test_the_same_seed_and_a_resumed_run_give_the_same_encoder(settings, tmp_path):
    short = replace(settings, epochs=2, checkpoint_seconds=0.0)
    examples = text_examples(60)
    unbroken = train(examples, short)

    class StoppedError(Exception):
        pass

    def stop(event):
        if event.kind == "epoch" and event.epoch == 1:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(examples, short, run=tmp_path / "run", progress=stop)
    assert same_weights(train(examples, short, run=tmp_path / "run", resume=True), unbroken)


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "t5"])
def test_other_architectures_train_and_load(kind, tmp_path):
    size = save_tokenizer(tmp_path / "encoder")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        made = {
            "roberta": lambda: transformers.RobertaModel(
                transformers.RobertaConfig(vocab_size=size, max_position_embeddings=12, pad_token_id=0, **TINY)
            ),
            "distilbert": lambda: transformers.DistilBertModel(
                transformers.DistilBertConfig(vocab_size=size, dim=32, n_layers=1, n_heads=2, hidden_dim=64)
            ),
            "t5": lambda: transformers.T5Model(
                transformers.T5Config(vocab_size=size, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2)
            ),
        }[kind]()
    made.save_pretrained(tmp_path / "encoder")
    examples = text_examples(40)
    model = train(examples, TrainSettings(encoder=str(tmp_path / "encoder"), epochs=1, threads=1))
    model.save(tmp_path / "model")
    long = ["salt " * 400]
    assert torch.equal(load_model(tmp_path / "model").logits(long), model.logits(long))


def test_the_command_trains_and_predicts_with_an_encoder(encoder, tmp_path, capfd):
    rows = [{"text": text, "labels": labels} for text, labels in _rows(text_examples(80))]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    flags = ["--model", "encoder", "--encoder", str(encoder), "--epochs", "1", "--threads", "1", "--max-tokens", "12"]
    assert main(["train", str(tmp_path / "rows.jsonl"), "--run", str(tmp_path / "run"), *flags]) == 0
    capfd.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "rows.jsonl")]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 80
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "rows.jsonl"), "--json"]) == 0


def _rows(examples):
    return zip(examples.texts, examples.label_sets(), strict=True)


def test_an_encoder_reads_texts(encoder):
    with pytest.raises(ValueError, match=r"must be linear or mlp or .* for features; got 'encoder'"):
        train(feature_examples(20), TrainSettings(encoder=str(encoder)))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": "encoder"}, "`encoder` must name an encoder or its folder"),
        ({"model": "bag", "encoder": "x"}, "`encoder` must go with the model encoder"),
        ({"encoder": "x", "max_tokens": 0}, "`max_tokens` must be a whole number >= 1"),
    ],
)
def test_settings_of_an_encoder_that_do_not_fit_are_named(changed, words):
    with pytest.raises(ValueError, match=words):
        TrainSettings(**changed)


def read(name):
    train(text_examples(20), TrainSettings(encoder=str(name)))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        read(tmp_path / "nothing")


def test_a_name_without_a_connection_is_one_line_with_a_remedy(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="give the folder of an encoder") as caught:
        read("nobody/no-such-encoder")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["transformers", "tokenizers"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, encoder, trained, tmp_path, missing):
    trained.save(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ValueError, match=rf"{missing}.*pip install manyhot\[text\]"):
        load_model(tmp_path) if missing == "tokenizers" else read(encoder)


def copy_of(encoder, folder):
    folder.mkdir()
    for path in encoder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_weights_that_would_be_unpickled_are_refused(encoder, tmp_path):
    folder = copy_of(encoder, tmp_path / "copy")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"could not be read: .*safetensors"):
        read(folder)


def test_weights_that_are_missing_or_damaged_are_named(encoder, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = copy_of(encoder, tmp_path / "copy")
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.0.output.dense.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"has none for 'encoder.layer.0.output.dense.weight'"):
        read(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="could not be read"):
        read(folder)


def test_weights_outside_the_encoder_s_folder_are_refused(encoder, tmp_path):
    folder = copy_of(encoder, tmp_path / "copy")
    index = {"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must have its weights in its own folder"):
        read(folder)


def test_an_encoder_s_own_code_is_never_run(encoder, tmp_path):
    folder = copy_of(encoder, tmp_path / "copy")
    marker = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Config: pass\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="could not be read"):
        read(folder)
    assert not marker.exists()
