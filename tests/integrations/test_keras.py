import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Keras takes its backend once a process.
BACKENDS = ["torch", "jax", "tensorflow"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_losses_metrics_and_saving_hold_on_the_backend(backend, tmp_path):
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(HERE / "keras_checks.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"on {backend}: all checks hold" in done.stdout
