"""An exported folder goes to the hub and comes back by the hub's own client, over HTTP to a hub on loopback."""

import copy
import json
import os
import subprocess
import sys

import pytest
import torch

from export.fake_hub import FakeHub
from manyhot.decisions.rule import DecisionRule, decide

pytest.importorskip("transformers", reason="the extra `text` is not installed")

from manyhot.export.huggingface_folder import export_huggingface

# In a process of its own: the client reads where the hub is when it is imported.
PUSH_AND_LOAD = """
import json, pathlib, subprocess, sys
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

folder, texts = sys.argv[1], json.load(sys.stdin)
# The command of docs/export.md.
subprocess.run([pathlib.Path(sys.executable).with_name("hf"), "upload", "me/posts", folder], check=True)
tokens = AutoTokenizer.from_pretrained("me/posts")(texts, padding=True, truncation=True, max_length=24, return_tensors="pt")
model = AutoModelForSequenceClassification.from_pretrained("me/posts", trust_remote_code=True).eval()
with torch.inference_mode():
    logits = model(**tokens).logits
names = [model.config.id2label[i] for i in range(logits.shape[1])]
with open(sys.argv[2], "w") as file:
    json.dump({"logits": logits.tolist(), "names": names}, file)
"""


def test_a_folder_that_was_pushed_is_loaded_again_and_decides_alike(encoder_model, tmp_path):
    model, examples = copy.copy(encoder_model[0]), encoder_model[1]
    model.rule = DecisionRule(threshold=(0.4, -0.3, 0.0, 1.0, -1.0, 0.2))
    texts = list(examples.texts)
    export_huggingface(model, tmp_path / "folder", rows=texts)
    hub = FakeHub()
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    environment |= {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": "hf_of_nobody",
        "OMP_NUM_THREADS": "1",
        "NO_PROXY": "*",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", PUSH_AND_LOAD, str(tmp_path / "folder"), str(tmp_path / "told.json")],
            input=json.dumps(texts),
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        hub.close()
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads((tmp_path / "told.json").read_text())
    assert {path.name for path in (tmp_path / "folder").iterdir()} == set(hub.files)
    assert tuple(told["names"]) == model.label_names
    assert (torch.tensor(told["logits"]) > 0).equal(decide(model.logits(texts), model.rule))
    assert any("/resolve/" in each and each.endswith("model.safetensors") for each in hub.asked)
