"""One callback for experiment trackers: MLflow and Weights & Biases, or anything that takes a dictionary of numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from manyhot.training.run.progress import Event

LogMetrics = Callable[[dict[str, float], int], Any]


class Tracking:
    """Sends the epochs of a run, its final metrics and its report to a tracker. Pass it as ``progress`` to ``train``.

    Args:
        log_metrics: called with a dictionary of finite numbers and the step.
        log_settings: called once with the settings of a run.
        log_file: called with the path of a report or bundle to upload.

    Example:
        >>> seen = []
        >>> tracking = Tracking(lambda metrics, step: seen.append((step, metrics)))
        >>> tracking(Event("epoch", epoch=1, loss=0.5, metric="P@5", value=0.25))
        >>> tracking.finish({"micro-F1": 0.7})
        >>> seen
        [(1, {'loss': 0.5, 'P@5': 0.25}), (2, {'test/micro-F1': 0.7})]
    """

    def __init__(
        self,
        log_metrics: LogMetrics,
        *,
        log_settings: Callable[[dict[str, Any]], Any] | None = None,
        log_file: Callable[[Path], Any] | None = None,
    ) -> None:
        self._log_metrics, self._log_settings, self._log_file = log_metrics, log_settings, log_file
        self._step = 0

    @classmethod
    def mlflow(cls, mlflow: Any) -> Tracking:
        """Log to the active run of MLflow; pass the module, or an object with its ``log_*`` functions.

        MLflow does not allow ``@`` in names: ``P@5`` becomes ``P_at_5``.
        """

        def metrics(values: dict[str, float], step: int) -> None:
            mlflow.log_metrics({_plain(name): value for name, value in values.items()}, step=step)

        def file(path: Path) -> None:
            (mlflow.log_artifacts if path.is_dir() else mlflow.log_artifact)(str(path))

        return cls(metrics, log_settings=mlflow.log_params, log_file=file)

    @classmethod
    def wandb(cls, run: Any) -> Tracking:
        """Log to a run of Weights & Biases, as returned by ``wandb.init``."""

        def file(path: Path) -> None:
            run.save(str(path / "*" if path.is_dir() else path), base_path=str(path.parent), policy="now")

        return cls(
            lambda values, step: run.log(values, step=step),
            log_settings=lambda settings: run.config.update(settings),
            log_file=file,
        )

    def __call__(self, event: Event) -> None:
        """Log an event of a training run; only epochs are logged."""
        if event.kind != "epoch":
            return
        self._step = max(self._step + 1, event.epoch)
        values = {"loss": event.loss, "rows per second": event.rows_per_second}
        if event.metric:
            values[event.metric] = event.value
        self._send(values)

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Log the settings of a run: ``tracking.settings(settings.to_dict())``."""
        if self._log_settings is not None:
            self._log_settings({name: value for name, value in settings.items() if value is not None})

    def finish(self, scores: Mapping[str, float], *, report: str | Path | None = None, part: str = "test") -> None:
        """Log the metrics of ``evaluate`` with the prefix ``part/``, and upload a report or bundle."""
        self._step += 1
        self._send({f"{part}/{name}": value for name, value in scores.items()})
        if report is not None and self._log_file is not None:
            path = Path(report)
            if not path.exists():
                raise ValueError(f"Tracking.finish: `report` must be a file or folder; there is no {str(path)!r}.")
            self._log_file(path)

    def _send(self, values: Mapping[str, float]) -> None:
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        if finite:
            self._log_metrics(finite, self._step)


def _plain(name: str) -> str:
    return re.sub(r"[^\w\-./ ]", "_", name.replace("@", "_at_"))
