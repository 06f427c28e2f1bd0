"""Settings that hold for every test: fresh memory is NaN, so that an output nobody wrote cannot pass for a zero."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import manyhot
from manyhot.engines.registry import ENTRIES
from manyhot.engines.triton import engine as triton_engine

settings.register_profile("manyhot", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("manyhot")


@pytest.fixture(autouse=True)
def _fresh_memory_is_nan(monkeypatch):
    """`torch.empty` and its relatives give NaN (or the largest integer) in tests."""
    torch.use_deterministic_algorithms(True, warn_only=False)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def one_thread():
    """torch with one thread, and with its own number again afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def data_folder():
    """The real data sets, found through MANYHOT_DATA alone."""
    folder = os.environ.get("MANYHOT_DATA")
    if not folder:
        pytest.skip("MANYHOT_DATA is not set: it names the folder with the real data sets")
    return Path(folder)


@dataclass(frozen=True)
class Place:
    """A device and the engine to use there."""

    device: str
    engine: str

    def put(self, thing):
        return thing.to(self.device)


# The plain form on every kind of device that has an engine, and every engine of the registry on its own.
PLACES = [
    pytest.param(Place(entry.device, name), id=f"{entry.device}-{name}", marks=[] if entry.device == "cpu" else pytest.mark.gpu)
    for entry in ENTRIES
    for name in ("torch", entry.name)
]
if triton_engine.interpreted():
    PLACES.append(pytest.param(Place("cpu", "triton"), id="interpreted-triton"))


@pytest.fixture(params=PLACES, scope="session")
def place(request):
    """Every device and engine that can be tried here."""
    reason = manyhot.available_engines()[request.param.engine]
    if reason != "available":
        pytest.skip(f"engine {request.param.engine}: {reason}")
    return request.param
