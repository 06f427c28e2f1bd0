"""The plan of a comparison: its data sets, bodies, methods and seeds, and the cells that are still missing."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from manyhot._checks import check_choice
from manyhot._cores import available_cores
from manyhot.comparison.job import Job
from manyhot.comparison.methods import Method, parse_method
from manyhot.comparison.records import Record, cell_key
from manyhot.comparison.sets import SetFiles
from manyhot.comparison.settings import COMPARED_MODELS, CompareSettings


@dataclass(frozen=True)
class Plan:
    """All cells: every data set with every body, method and seed.

    Args:
        sets: the data sets.
        models: ``linear``, ``mlp``.
        methods: the methods.
        seeds: the number of seeds; they are numbered from 0.
        settings: the budget.
        created: the date of the plan.
    """

    sets: tuple[SetFiles, ...]
    models: tuple[str, ...]
    methods: tuple[Method, ...]
    seeds: int
    settings: CompareSettings = field(default_factory=CompareSettings)
    created: str = ""

    def __post_init__(self) -> None:
        for name in self.models:
            check_choice("compare", "models", name, COMPARED_MODELS)
        if not self.sets or not self.models or not self.methods or self.seeds < 1:
            raise ValueError("compare: there must be at least one data set, model, loss and seed.")

    @property
    def num_cells(self) -> int:
        """The number of cells."""
        return len(self.sets) * len(self.models) * len(self.methods) * self.seeds

    def missing(self, cells: Iterable[Record]) -> list[Job]:
        """Jobs for the missing cells; a failed cell counts as missing."""
        done = {cell["key"] for cell in cells if "error" not in cell}
        jobs = []
        for files in self.sets:
            for model in self.models:
                for method in self.methods:
                    left = [s for s in range(self.seeds) if cell_key(files.name, model, method.name, s) not in done]
                    if left:
                        jobs.append(Job(files.name, model, method, tuple(left)))
        return jobs

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON, with versions and hardware."""
        return {
            "version": 1,
            "created": self.created or datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "data": {each.name: {"files": [Path(f).name for f in (*each.train, *each.test)]} for each in self.sets},
            "models": list(self.models),
            "methods": [method.name for method in self.methods],
            "seeds": self.seeds,
            "settings": self.settings.to_dict(),
            "versions": _versions(),
            "hardware": hardware(),
            "cells": self.num_cells,
            "sources": [asdict(each) for each in self.sets],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """From the dict of ``to_dict``."""
        sets = [
            SetFiles(each["name"], tuple(each["train"]), tuple(each["test"]), dict(each["reading"])) for each in data["sources"]
        ]
        return cls(
            tuple(sets),
            tuple(data["models"]),
            tuple(parse_method(name) for name in data["methods"]),
            int(data["seeds"]),
            CompareSettings.from_dict(data["settings"]),
            str(data["created"]),
        )


def _versions() -> dict[str, str]:
    import manyhot

    return {"manyhot": manyhot.__version__, "torch": torch.__version__, "python": platform.python_version()}


def hardware() -> str:
    """A description of the machine."""
    cores = f"{available_cores()} CPU cores"
    if not torch.cuda.is_available():
        return cores
    return f"{cores}, {torch.cuda.get_device_name(0)}"
