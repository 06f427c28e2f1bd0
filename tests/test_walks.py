"""The walks that CONTRIBUTING draws: stages are entered in the order drawn, and none calls or imports one before it.

``tests/engines/triton/test_stages.py`` has the walk of a loss on CUDA.
"""

import json
import sys

import pytest
import torch

from manyhot import zlpr_loss
from manyhot.cli.main import main
from manyhot.engines.registry import is_there
from test_house import SOURCE, imported_modules

# Module and function of each stage.
LOSS = [
    ("losses.zlpr", "zlpr_loss"),
    ("losses.core.dispatch", "side_loss"),
    ("losses.core.layout", "arrange"),
    ("engines.registry", "choose"),
]
NATIVE = [*LOSS, ("engines.native.engine", "fused")]
PLAIN = [*LOSS, ("engines.terms", "DenseTerms.sides")]
ROWS = [
    ("cli.commands.train", "train"),
    ("data.read", "read_with"),
    ("training.rows.train", "train"),
    ("training.rows.inputs.texts", "TextInputs.fit"),
    ("training.rows.bodies.registry", "make_body"),
    ("training.run.session", "RunSession.run"),
    ("training.run.fit", "Fit.run_epoch"),
    ("training.rows.rules.fitting", "fit_rule"),
    ("training.rows.bundle", "TrainedModel.save"),
    ("report.run.measure", "measure_run"),
    ("report.files", "write_report"),
]
SPANS = [
    ("cli.commands.train", "train"),
    ("cli.commands.spans.train", "train_on_spans"),
    ("data.spans.read", "read_span_examples"),
    ("training.spans.train", "train_spans"),
    ("training.spans.session", "SpanSession.train"),
    ("training.spans.network", "make_encoder"),
    ("training.run.session", "RunSession.run"),
    ("training.run.fit", "Fit.run_epoch"),
    ("training.spans.bundle", "TrainedSpanModel.save"),
    ("report.spans.measure", "measure_spans"),
    ("report.files", "write_report"),
]


def stage_of(frame, walk):
    """The place of a frame's function in the walk, or None."""
    module = frame.f_globals.get("__name__", "").removeprefix("manyhot.")
    key = (module, frame.f_code.co_qualname)
    return walk.index(key) if key in walk else None


def take(walk, function):
    """Run ``function`` and return the stages in the order of their first calls; a call back to an earlier stage fails."""
    entered, back = [], []

    def watch(frame, event, _):
        stage = stage_of(frame, walk) if event == "call" else None
        if stage is None:
            return
        if stage not in entered:
            entered.append(stage)
        caller = frame.f_back
        while caller is not None:
            above = stage_of(caller, walk)
            if above is not None and above > stage:
                back.append((walk[above], walk[stage]))
            caller = caller.f_back

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    assert not back, f"calls back: {back}"
    return [walk[stage] for stage in entered]


@pytest.mark.parametrize(("engine", "walk"), [("native", NATIVE), ("torch", PLAIN)])
def test_a_loss_on_the_cpu_walks_from_its_function_to_the_engine(engine, walk):
    if engine == "native" and not is_there("native"):
        pytest.skip("the native engine is not built")
    logits, labels = torch.randn(3, 5, requires_grad=True), torch.rand(3, 5) < 0.4
    assert take(walk, lambda: zlpr_loss(logits, labels, engine=engine).backward()) == walk


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_training_on_rows_walks_from_the_command_to_the_report(tmp_path):
    rows = [{"text": f"{word} number {n}", "labels": [word]} for n in range(20) for word in ("egg", "pan")]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    command = ["train", file, "--run", str(tmp_path / "run"), "--loss", "zlpr", "--epochs", "2", "--quiet"]
    assert take(ROWS, lambda: main(command)) == ROWS


def test_training_on_spans_takes_the_same_walk(tmp_path):
    mark = [{"start": 0, "end": 3, "type": "PER"}]
    rows = [{"text": f"{name} met him, number {n}", "spans": mark} for n in range(20) for name in ("Ada", "Eve")]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    command = ["train", "--task", "spans", file, "--run", str(tmp_path / "run"), "--epochs", "2", "--quiet"]
    assert take(SPANS, lambda: main(command)) == SPANS


# Modules that call the other stages of a walk one after the other.
LEADERS = {
    "cli.commands.train",
    "cli.commands.spans.train",
    "training.rows.train",
    "training.spans.train",
    "training.spans.session",
}


@pytest.mark.parametrize("walk", [NATIVE, PLAIN, ROWS, SPANS], ids=["native", "plain", "rows", "spans"])
def test_no_stage_imports_one_that_leads_to_it(walk):
    modules = [module for module, _ in walk]
    for place, module in enumerate(modules):
        earlier = {name for name in modules[:place] if walk in (NATIVE, PLAIN) or name in LEADERS}
        found = imported_modules(SOURCE / (module.replace(".", "/") + ".py")) & earlier
        assert not found - {module}, f"{module} imports {found}"
