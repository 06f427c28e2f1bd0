"""Every flag of `manyhot train` changes what comes out, or is refused with a reason: no flag is silent.

The flags are read off the command. A new one needs a changed value here, or the first test says that it has none.
"""

import gzip
import hashlib
import json
import random
import re
from dataclasses import fields
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file

from cli.conftest import write_posts
from manyhot.cli.main import load_command, main
from manyhot.data.files import streams
from manyhot.losses.catalog import LOSSES
from manyhot.training.rows.options import UNUSED
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.strategies import STRATEGIES
from manyhot.training.run.session import RunSession
from manyhot.training.spans.settings import SPAN_LOSSES, SpanSettings

ROW_SETTINGS = [each.name for each in fields(TrainSettings)]
SPAN_SETTINGS = [each.name for each in fields(SpanSettings)]
TEACHER = "the base run"
# Values that differ from the default and from what it means.
SHARED = {
    "rdrop": ["1.5"],
    "epochs": ["5"],
    "batch_size": ["11"],
    "learning_rate": ["0.3"],
    "weight_decay": ["0.9"],
    "warmup": ["0.6"],
    "schedule": ["cosine", "constant"],
    "clip": ["0.001"],
    "patience": ["1"],
    "validation": ["0.35"],
    "checkpoint_seconds": ["0"],
    "hidden": ["7"],
    "dropout": ["0.7"],
    "min_count": ["9"],
    "max_tokens": ["5"],
    "device": ["cuda:9"],
    "precision": ["bfloat16"],
    "threads": ["3"],
    "seed": ["5"],
    "tensorboard": [True],
}
ROW_VALUES = SHARED | {
    "model": ["linear", "mlp", "bag", "tree", "wide", "conv", "encoder"],
    "encoder": ["./no-such-folder"],
    "strategy": [name for name in STRATEGIES if name != "plain"],
    "loss": [name for name in LOSSES if name != "zlpr"],
    "loss_option": ["gamma=1"],
    "pos_weight": ["7", "auto"],
    "propensity_weights": [True],
    "smoothing": ["0.2"],
    "flip": ["0.4"],
    "mixup": ["0.5"],
    "learn_threshold": [True],
    "row_threshold": [True],
    "teacher": [TEACHER],
    "teacher_share": ["0.2"],
    "metric": ["SubACC", "MLC-F1", "micro-F1", "macro-F1", "micro-recall", "AvgPrec", "P@2", "PSP@2", "mAP", "Brier"],
    "members": ["3"],
    "mean_of": ["zlpr,bce", "bce,powerset"],
    "budget": ["1h"],
    "folds": ["2"],
    "tune": ["micro-F1", "macro-F1", "MLC-F1", "sets", "none"],
    "per_label": [False],
    "shrink": ["90"],
    "min_labels": ["2"],
    "calibrate": ["platt"],
    "ngrams": ["2"],
    "word_starts": [False],
    "char_ngrams": ["3"],
    "max_features": ["4"],
    "trees": ["2"],
    "label_shards": ["2"],
    "beam": ["1"],
}
SPAN_VALUES = SHARED | {
    "body": ["characters", "transformer", "pretrained"],
    "pretrained": ["./no-such-folder"],
    "tokens": ["characters"],
    "head": ["global-pointer"],
    "rotary": [False],
    "loss": [name for name in SPAN_LOSSES if name != "zlpr"],
    "teacher": [TEACHER],
    "teacher_share": ["0.2"],
    "average": ["0"],
    "layers": ["2"],
    "head_size": ["6"],
    "word_dropout": ["0"],
    "affixes": ["0", "2"],
    "skip": [False],
    "overlap": ["1"],
    "decode": ["all", "flat"],
    "threshold": ["0.5"],
    "tune_threshold": [False],
}
# Where a setting must be used: with an mlp on dense features unless it is listed here.
TEXT = dict.fromkeys(("ngrams", "word_starts", "char_ngrams", "max_features", "min_count", "folds"), "linear on texts")
TREE = dict.fromkeys(("trees", "beam"), "tree on texts")
ELSEWHERE = TEXT | TREE | {"model": "linear on texts"}
# What needs a GPU, an encoder, several processes or another flag; the last have tests of their own.
NEEDS_MORE = {"encoder", "max_tokens", "device", "teacher_share", "loss_option", "label_shards"}
DENSE = ["--learning-rate", "0.03", "--hidden", "8", "--validation", "0.2", "--epochs", "24"]
RATE = ["--learning-rate", "0.03", "--validation", "0.2"]
BAG = ["--hidden", "8", "--dropout", "0.2"]
ROW_SITUATIONS = {
    "linear on texts": ["texts.jsonl", "--model", "linear", "--loss", "zlpr", "--epochs", "3", "--batch-size", "32"],
    "bag on texts": [
        "texts.jsonl",
        "--model",
        "bag",
        "--epochs",
        "3",
        "--batch-size",
        "32",
        "--hidden",
        "8",
        "--dropout",
        "0.2",
    ],
    "tree on texts": ["titles.jsonl", "--model", "tree", "--loss", "zlpr", "--epochs", "3", "--threads", "1"],
    "mlp on dense features": ["table.csv", "--labels", "y*", "--model", "mlp", *DENSE],
    "linear on dense features": ["table.csv", "--labels", "y*", "--model", "linear", "--epochs", "24", *RATE],
    "linear on sparse features": ["rows.svm", "--model", "linear", "--epochs", "3", "--batch-size", "32"],
    "mlp on sparse features": ["rows.svm", "--model", "mlp", "--epochs", "3", "--batch-size", "32", "--hidden", "8"],
}
SMALL = ["--layers", "1", "--hidden", "4", "--head-size", "4", "--epochs", "3", "--validation", "0.2", "--batch-size", "8"]
WINDOWS = ["--max-tokens", "12", "--overlap", "4"]
SPAN_SITUATIONS = {
    # At this rate some epochs are worse than the one before them, so that patience counts.
    "words": ["people.jsonl", "--task", "spans", *WINDOWS, *SMALL, "--epochs", "6", "--learning-rate", "0.03", "--no-report"],
}


def noisy_texts(draw, count):
    """Texts in which a label shows by its words, mostly."""
    lines = []
    for _ in range(count):
        own = [label for label, share in (("a", 0.5), ("b", 0.3), ("c", 0.15)) if draw.random() < share]
        words = [f"{label}word{draw.randint(0, 3)}" for label in own if draw.random() < 0.8]
        words += [f"noise{draw.randint(0, 20)}" for _ in range(4)]
        lines.append(json.dumps({"text": " ".join(words), "labels": own}))
    return "\n".join(lines) + "\n"


def write_files(folder):
    """Rows of every kind, small ones."""
    draw = random.Random(0)
    write_posts(folder / "posts.jsonl", 90, 0)
    write_posts(folder / "others.jsonl", 60, 1)
    (folder / "texts.jsonl").write_text(noisy_texts(draw, 90))
    lines = []
    for _ in range(300):
        own = draw.sample(range(40), draw.randint(1, 3))
        words = [f"word{label} near{label // 4}" for label in own if draw.random() < 0.8] + [f"noise{draw.randint(0, 20)}"]
        lines.append(json.dumps({"text": " ".join(words), "labels": [f"label{label}" for label in own]}))
    (folder / "titles.jsonl").write_text("\n".join(lines) + "\n")
    rows = [[draw.gauss(0, 1) for _ in range(5)] for _ in range(90)]
    hits = [[int(row[0] + row[1] > 0.3), int(row[2] - row[3] > 0.2), int(row[4] > 0)] for row in rows]
    lines = ["x0,x1,x2,x3,x4,y0,y1,y2"]
    lines += [",".join([*(f"{value:.3f}" for value in row), *map(str, hit)]) for row, hit in zip(rows, hits, strict=True)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    lines = []
    for row, hit in zip(rows, hits, strict=True):
        kept = " ".join(f"{place + 1}:{value:.3f}" for place, value in enumerate(row) if abs(value) > 0.4)
        lines.append(f"{','.join(str(place) for place, there in enumerate(hit) if there)} {kept}")
    (folder / "rows.svm").write_text("\n".join(lines) + "\n")
    more = (folder / "texts.jsonl").read_text().splitlines()
    (folder / "few.jsonl").write_text("\n".join(more[:20]) + "\n")
    (folder / "more.jsonl").write_text(noisy_texts(random.Random(5), 400))
    rows = [json.loads(line) for line in more]
    for name, change in (
        ("soft", lambda row: {"labels": {label: round(draw.uniform(0.5, 1), 2) for label in row["labels"]}}),
        ("long", lambda row: {"text": row["text"] + "".join(f" noise{draw.randint(0, 20)}" for _ in range(255))}),
    ):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({**row, **change(row)}) + "\n" for row in rows))
    lines = []
    for _ in range(30):
        name, city = draw.choice(("Ada", "Bob", "Eve", "Kim", "Lou")), draw.choice(("Rom", "Oslo", "Bonn", "Kiew"))
        filler = " ".join(draw.choice(("now", "then", "here", "there")) for _ in range(draw.randint(4, 24)))
        text = f"{name} met the Uni {city} {filler}"
        start = text.index("Uni")
        end = start + 4 + len(city)
        spans = [("PER", 0, len(name)), ("ORG", start, end), ("LOC", start + 4, end)]
        lines.append(json.dumps({"text": text, "spans": [{"type": t, "start": a, "end": b} for t, a, b in spans]}))
    (folder / "people.jsonl").write_text("\n".join(lines) + "\n")


class Train:
    """The command in this process, in a folder with the files, and what came out of each call."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.calls, self.seen = folder, 0, []
        monkeypatch.chdir(folder)
        # Small files too must not expand more than they may.
        monkeypatch.setattr(streams, "FREE_BYTES", 1000)
        tell, save = RunSession.tell, RunSession.save
        monkeypatch.setattr(
            RunSession, "tell", lambda own, event: (self.seen.append(torch.get_num_threads()), tell(own, event))
        )
        monkeypatch.setattr(RunSession, "save", lambda own, *a, **k: (self.seen.append("saved"), save(own, *a, **k)))

    def __call__(self, arguments, capfd):
        """``(result, error)``: one of them is None."""
        self.calls += 1
        self.seen.clear()
        run = self.folder / f"run-{self.calls}"
        given = [*map(str, arguments)]
        given += [] if {"spans", "--report", "--resume"} & set(given) else ["--no-report"]
        given += [] if "--run" in given or "--resume" in given else ["--run", str(run)]
        capfd.readouterr()
        code = main(["train", *given])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        if code != 0:
            assert not run.exists(), f"a refused run left its folder: {given}"
            return None, err
        run = run if run.exists() else self.folder / "elsewhere" / "run"
        told = re.sub(r"[0-9.]+ s\b|Report.*", "", out.replace(run.name, "RUN"))
        return {
            "model": digest_of(run / "model"),
            "files": sorted(re.sub("[0-9a-f]{8,}|[0-9]{9,}.*", "*", str(path.relative_to(run))) for path in run.rglob("*")),
            "log": log_of(run / "metrics.jsonl"),
            "threads": {each for each in self.seen if each != "saved"},
            "checkpoints": self.seen.count("saved"),
            "output": told,
            "quiet": not err,
            "place": str(run.relative_to(self.folder)).rstrip("0123456789"),
        }, None


def digest_of(folder):
    """The model without the settings it was made with."""
    told = json.loads((folder / "model.json").read_text())
    (weights,) = folder.glob("weights-*.safetensors")
    bits = {name: hashlib.sha256(each.numpy().tobytes()).hexdigest() for name, each in load_file(weights).items()}
    return {name: value for name, value in told.items() if name not in ("settings", "about", "weights")}, bits


def log_of(path):
    """What happened, without when: how often a long epoch tells where it stands depends on the time too."""
    kept = ("kind", "message", "epoch", "epochs", "loss", "metric", "value")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [line for line in lines if line["kind"] != "step"]
    return [{key: str(line.get(key)) for key in kept if "trained in" not in str(line.get("message"))} for line in told]


@pytest.fixture
def command(tmp_path, monkeypatch):
    write_files(tmp_path)
    return Train(tmp_path, monkeypatch)


def as_flag(name, value):
    """The flag as it is typed."""
    dashed = name.replace("_", "-")
    return [f"--{'' if value else 'no-'}{dashed}"] if isinstance(value, bool) else [f"--{dashed}", value]


def without(base, name):
    """The arguments of a situation without the flag ``name``."""
    flag = "--" + name.replace("_", "-")
    place = base.index(flag) if flag in base else len(base)
    return base[:place] + base[place + 2 :]


def outcomes(command, capfd, base, values):
    """For every setting and value ``changed``, ``refused`` or ``silent``."""
    first, error = command(base, capfd)
    assert error is None, error
    assert command(base, capfd)[0] == first, "two equal runs must give the same, or this test shows nothing"
    teacher = str(command.folder / "run-1")
    found = {}
    for name, texts in values.items():
        for text in texts:
            if tuple(as_flag(name, text)) in pairwise(base):
                continue
            given = as_flag(name, teacher if text == TEACHER else text)
            result, error = command([*without(base, name), *given], capfd)
            if error is None:
                found[name, text] = "silent" if result == first else "changed"
                continue
            found[name, text] = "refused"
            assert name in error.replace("-", "_") or str(text) in error, f"{given}: {error}"
            assert len(error.strip()) > 20
    return found


def check_outcomes(found, home):
    """No value is silent, and the settings that belong to this situation are used in it."""
    assert [key for key, what in found.items() if what == "silent"] == []
    used = {name for (name, _), what in found.items() if what == "changed"}
    assert home - used == set()


def test_every_flag_has_a_changed_value_here():
    typed = {each.name for each in load_command("train").params}
    assert typed == {*ROW_VALUES, *SPAN_VALUES, *CASES}
    assert set(ROW_VALUES) == set(ROW_SETTINGS)
    assert set(SPAN_VALUES) == set(SPAN_SETTINGS)
    assert {*ELSEWHERE, *NEEDS_MORE} <= set(ROW_VALUES)


@pytest.mark.parametrize("title", ROW_SITUATIONS)
def test_no_setting_of_rows_is_silent(title, command, capfd):
    home = {name for name in ROW_VALUES if ELSEWHERE.get(name, "mlp on dense features") == title} - NEEDS_MORE
    check_outcomes(outcomes(command, capfd, ROW_SITUATIONS[title], ROW_VALUES), home)


# Settings whose use depends on the rest of the run, tried in further situations. A value that says what holds anyway is named.
DEPENDING = [*UNUSED, "word_starts", "strategy", "loss", "learn_threshold", "row_threshold", "smoothing", "flip", "teacher"]
SHORT = ["--model", "linear", "--epochs", "3", "--batch-size", "32"]
HINGE = {("loss", "squared_hinge"): "is the default on texts", ("calibrate", "platt"): "is the default then"}
NO_HELD_OUT = ["--learning-rate", "0.03", "--hidden", "8", "--validation", "0", "--epochs", "6"]
FURTHER = {
    "long texts": (["long.jsonl", *SHORT], HINGE),
    "few rows": (["few.jsonl", *SHORT], {}),
    "soft labels": (["soft.jsonl", *SHORT], {}),
    "validation rows": (["texts.jsonl", "--validation-file", "more.jsonl", *SHORT], HINGE),
    "no tuned rule": (["texts.jsonl", "--tune", "none", *SHORT], {("pos_weight", "auto"): "is the default then"}),
    "no held-out rows": (["table.csv", "--labels", "y*", "--model", "mlp", *NO_HELD_OUT], {}),
    "label powerset": (
        ["texts.jsonl", "--strategy", "label-powerset", *SHORT],
        {("tune", "none"): "is the default then", ("loss", "softmax"): "is the default then"},
    ),
    "one label per row": (["texts.jsonl", "--loss", "softmax", *SHORT], {("tune", "none"): "is the default then"}),
    "bce": (["texts.jsonl", "--loss", "bce", *SHORT], {("strategy", "binary-relevance"): "is bce"}),
    "pairwise": (["texts.jsonl", "--loss", "pairwise", *SHORT], {("strategy", "label-ranking"): "is pairwise"}),
    "tlpr": (["texts.jsonl", "--loss", "tlpr", *SHORT], {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("title", FURTHER)
def test_no_setting_is_silent_where_it_cannot_be_used(title, command, capfd):
    base, same = FURTHER[title]
    values = {name: ROW_VALUES[name] for name in dict.fromkeys(DEPENDING)}
    found = outcomes(command, capfd, base, values)
    assert {key for key, what in found.items() if what == "silent"} <= set(same)


def test_first_letters_of_long_texts_are_features_where_they_are_asked_for(command, capfd):
    base = ["long.jsonl", *SHORT]
    assert command(base, capfd)[0] != command([*base, "--word-starts"], capfd)[0]


@pytest.mark.parametrize(
    ("base", "more", "said"),
    [
        (["texts.jsonl", *SHORT], ["--max-features", "9000000"], "--max-features has no effect: the data has at most"),
        (["posts.jsonl", "--text", "text"], ["--ids", "id", "--no-report"], "--ids names the rows of the report"),
        (["posts.jsonl"], ["--delimiter", ";"], "--delimiter must be left out: it is for csv, tsv"),
        (["posts.jsonl"], ["--index-base", "0"], "--index-base must be left out: it is for svmlight"),
        (["posts.jsonl"], ["--separator", ";"], "--separator must be left out: a row's labels are a list"),
        (["posts.jsonl"], ["--label-file", "x.xml"], "--label-file must be left out: it is for arff"),
        (["table.csv", "--labels", "y*"], ["--empty-labels", "unknown"], "--empty-labels must be left out: each"),
        (["rows.svm"], ["--features", "x"], "--features must be left out"),
        (["rows.svm"], ["--text", "x"], "--text must be left out"),
        (["rows.svm"], ["--no-header"], "--header must be left out"),
        (["rows.svm"], ["--no-quoting"], "--quoting must be left out"),
        (["rows.svm"], ["--ids", "x"], "--ids must be left out"),
        (["long.jsonl"], ["--no-word-starts"], "--word-starts must be left out: texts of 26"),
    ],
)
def test_a_flag_that_cannot_matter_is_refused_or_said_in_one_line(base, more, said, command, capfd):
    main(["train", *base, *more, "--run", "one"])
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("title", SPAN_SITUATIONS)
def test_no_setting_of_spans_is_silent(title, command, capfd):
    home = set(SPAN_VALUES) - {"pretrained", "device", "threshold", "teacher_share"} if title == "words" else set()
    check_outcomes(outcomes(command, capfd, SPAN_SITUATIONS[title], SPAN_VALUES), home)


def test_a_threshold_for_spans_counts_where_it_is_not_tuned(command, capfd):
    base = [*SPAN_SITUATIONS["words"], "--no-tune-threshold"]
    assert command(base, capfd)[0] != command([*base, "--threshold", "-2"], capfd)[0]


@pytest.mark.parametrize("base", [ROW_SITUATIONS["linear on dense features"], SPAN_SITUATIONS["words"]], ids=["rows", "spans"])
def test_the_share_of_the_teacher_counts(base, command, capfd):
    command(base, capfd)
    taught = [*base, "--teacher", command.folder / "run-1"]
    assert command(taught, capfd)[0] != command([*taught, "--teacher-share", "0.2"], capfd)[0]


@pytest.mark.parametrize("loss", [name for name, info in LOSSES.items() if info.options])
def test_every_option_of_every_loss_counts(loss, command, capfd):
    base = [*ROW_SITUATIONS["linear on dense features"], "--loss", loss]
    first, error = command(base, capfd)
    assert error is None, error
    for option in LOSSES[loss].options:
        changed = 1 if option.kind is int else 0.35 if option.default is None else option.default * 1.5 + 0.11
        result, error = command([*base, "--loss-option", f"{option.name}={changed}"], capfd)
        assert error is None, error
        assert result != first, option.name


def write(folder, name, *lines):
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return name


def written_table(folder, name, heading, row):
    """Forty rows of a table, each made of two lists of labels and its number."""
    sets = (("a",), ("b",), ("a", "b"), ())
    return write(folder, name, heading, *(row(number, sets[number % 4]) for number in range(40)))


def text_table(folder, joiner="|"):
    rows = "{0} word{0}{1},{2},other{3} {3} more,k{4}"
    return written_table(
        folder,
        "texts.csv",
        "text,labels,other,key",
        lambda n, own: rows.format(" ".join(own) or "none", "", joiner.join(own), n % 2, n),
    )


def case_task(_):
    return ["posts.jsonl"], ["posts.jsonl", "--task", "spans"]


def case_resume(_):
    return ["posts.jsonl"], ["--resume", "nowhere"]


def case_config(folder):
    write(folder, "more.toml", "[train]", 'loss = "bce"')
    return ["posts.jsonl"], ["posts.jsonl", "--config", "more.toml"]


def case_scheme(folder):
    rows = [line for n in range(30) for line in (f"Ada{n % 3} I-PER", "met O", "Bob I-PER", "")]
    base = [write(folder, "tags.conll", *rows), "--task", "spans", *SMALL]
    return base, [*base, "--scheme", "iobes"]


def case_tag_columns(folder):
    rows = [line for n in range(30) for line in (f"Ada{n % 3} B-PER B-ORG", "met O O", "Bob B-PER O", "")]
    base = [write(folder, "tags.conll", *rows), "--task", "spans", *SMALL]
    return base, [*base, "--tag-columns", "1"]


def case_label_names(folder):
    write(folder, "names.txt", "eggs", "pans", "bread", "fish")
    return ["posts.jsonl"], ["posts.jsonl", "--label-names", "names.txt"]


def case_label_file(folder):
    heading = ["@relation r", "@attribute x numeric", *(f"@attribute {name} {{0,1}}" for name in ("y", "z")), "@data"]
    write(folder, "rows.arff", *heading, *(f"{n % 3},{n % 2},{(n // 2) % 2}" for n in range(40)))
    for name, labels in (("rows", "yz"), ("other", "z")):
        write(folder, f"{name}.xml", "<labels>", *(f'<label name="{each}"></label>' for each in labels), "</labels>")
    return ["rows.arff"], ["rows.arff", "--label-file", "other.xml"]


def case_quoting(folder):
    written_table(folder, "quoted.csv", "text,labels", lambda n, own: f'"{" ".join(own)} is word{n % 5}",{"|".join(own)}')
    return ["quoted.csv"], ["quoted.csv", "--no-quoting"]


def case_decimal(folder):
    write(folder, "commas.csv", "size;y0;y1", *(f"{n % 7},{n % 10};{n % 2};{int(n % 7 > 3)}" for n in range(60)))
    base = ["commas.csv", "--labels", "y*", *DENSE]
    return base, [*base, "--decimal", "."]


def case_skip_bad(folder):
    lines = (folder / "posts.jsonl").read_text().splitlines()
    base = [write(folder, "broken.jsonl", *lines[:40], "{broken", *lines[40:])]
    return base, [*base, "--skip-bad"]


def case_max_expansion(folder):
    (folder / "posts.jsonl.gz").write_bytes(gzip.compress((folder / "posts.jsonl").read_bytes() * 20))
    return ["posts.jsonl.gz"], ["posts.jsonl.gz", "--max-expansion", "1"]


def case_max_labels(folder):
    rows = [f"{n % 3} {n % 4}:1.0 4:0.5" for n in range(40)]
    base = [write(folder, "rows.txt", "40 5 3", *rows), "--format", "xc"]
    return base, [*base, "--max-labels", "2"]


def on_posts(*more):
    return lambda _: (["posts.jsonl"], ["posts.jsonl", *more])


def on_texts(*more):
    def case(folder):
        base = [text_table(folder), "--text", "text", "--labels", "labels"]
        return base, [*base, *more]

    return case


def case_separator(folder):
    base = [text_table(folder, joiner="/"), "--text", "text", "--labels", "labels"]
    return base, [*base, "--separator", "/"]


def case_text(folder):
    name = text_table(folder)
    return [name, "--text", "text", "--labels", "labels"], [name, "--text", "other", "--labels", "labels"]


def on_table(*more):
    return lambda _: (["table.csv", "--labels", "y*", *DENSE], ["table.csv", "--labels", "y*", *DENSE, *more])


# Flags that are no settings: arguments without and with them.
CASES = {
    "files": lambda _: (["posts.jsonl"], ["others.jsonl"]),
    "task": case_task,
    "validation_file": on_posts("--validation-file", "others.jsonl"),
    "test": on_posts("--test", "others.jsonl"),
    "run": on_posts("--run", "elsewhere/run"),
    "resume": case_resume,
    "config": case_config,
    "report": on_posts("--report"),
    # What a search finds is in tests/integrations/test_train_search.py; without optuna it is refused with the extra's name.
    "search": on_posts("--search", "2"),
    "search_space": on_posts("--search-space", "smoothing=0..1"),
    "search_metric": on_posts("--search-metric", "P@1"),
    "json": on_posts("--json"),
    "quiet": on_posts("--quiet"),
    "tag_columns": case_tag_columns,
    "scheme": case_scheme,
    "format": on_posts("--format", "csv"),
    "text": case_text,
    "labels": lambda _: (
        ["table.csv", "--labels", "y*", *DENSE],
        ["table.csv", "--labels", "y0", "--labels", "y1", *DENSE],
    ),
    "separator": case_separator,
    "features": on_table("--features", "x0", "--features", "x1"),
    "ids": on_table("--ids", "x0"),
    "label_names": case_label_names,
    "label_file": case_label_file,
    "delimiter": on_table("--delimiter", ";"),
    "header": on_table("--no-header"),
    "quoting": case_quoting,
    "decimal": case_decimal,
    "empty_labels": on_texts("--empty-labels", "unknown"),
    "index_base": lambda _: (["rows.svm"], ["rows.svm", "--index-base", "0"]),
    "skip_bad": case_skip_bad,
    "max_line_bytes": on_posts("--max-line-bytes", "40"),
    "max_expansion": case_max_expansion,
    "max_labels": case_max_labels,
}


@pytest.mark.parametrize("name", CASES)
def test_no_flag_of_the_command_is_silent(name, command, capfd):
    base, changed = CASES[name](command.folder)
    first, second = command(base, capfd), command(changed, capfd)
    assert first != second
    error = second[1]
    assert error is None or len(error.strip()) > 20
