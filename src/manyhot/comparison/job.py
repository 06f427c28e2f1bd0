"""A job of the grid: a method, a body, a data set and some seeds; and the amount of work of a job."""

from __future__ import annotations

from dataclasses import dataclass

from manyhot.comparison.budget import batch_size
from manyhot.comparison.ensemble import Shape
from manyhot.comparison.methods import POWERSET, Method
from manyhot.comparison.sets import SetShape
from manyhot.comparison.settings import CompareSettings
from manyhot.decisions.natural import natural_decision
from manyhot.decisions.rule import DecisionRule

RATES = {"linear": (0.001, 0.2), "mlp": (0.0002, 0.02)}
# Steps with more multiplications than this are faster on a GPU.
LARGE_STEP = 1e8
MOST_BYTES = 24 << 30


@dataclass(frozen=True)
class Job:
    """A job: the cells of these seeds."""

    data: str
    model: str
    method: Method
    seeds: tuple[int, ...]


def check_memory(shape: Shape, members: int) -> None:
    """Check that weights, gradients, Adam's state and two snapshots of all members fit into memory."""
    wanted = 6 * 4 * shape.parameters * members
    if wanted > MOST_BYTES:
        raise TooLargeError(f"{members} models of {shape.parameters:,} parameters would need {wanted / 2**30:.0f} GiB")


class TooLargeError(ValueError):
    """The members of a job do not fit into memory together."""


def step_work(job: Job, size: SetShape, settings: CompareSettings) -> float:
    """The number of multiplications of one training step of a job, forward and backward."""
    outputs = size.labels if job.method.loss != POWERSET else size.label_sets
    shape = Shape(size.features, outputs, settings.hidden if job.model == "mlp" else 0, 0.0)
    return 3.0 * shape.parameters * batch_size(size.rows, settings) * settings.trials * len(job.seeds)


def natural_rule(method: Method, cardinality: float) -> DecisionRule:
    """The natural rule of the loss. A loss that only ranks predicts as many labels as training rows have on average."""
    min_labels = method.options.get("min_labels", 0)
    if method.info is None:
        return DecisionRule(min_labels=min_labels)
    return natural_decision(method.info.decision).rule(cardinality=cardinality, min_labels=min_labels)
