"""A search over training settings with Optuna; the study is a file, so that a killed search can be resumed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyhot._checks import check_at_least
from manyhot._files import make_folder
from manyhot._suggest import nearest
from manyhot.data.examples import Examples
from manyhot.evaluation import evaluate
from manyhot.integrations.registry import framework
from manyhot.labels import stratified_split
from manyhot.losses import get_loss
from manyhot.metrics import parse_metric
from manyhot.training.rows.bodies.info import AUTO_BODY
from manyhot.training.rows.bodies.registry import bodies_for
from manyhot.training.rows.choose import is_sparse
from manyhot.training.rows.settings import ENCODER, TrainSettings
from manyhot.training.rows.train import train

optuna: Any = framework("optuna")

Range = tuple[float, float] | tuple[float, float, str] | Sequence[Any]
STUDY = "manyhot"
FILE = "study.log"


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        settings: the best settings, ready for ``train`` on all rows.
        value: the metric of these settings on the held-out rows.
        trials: the number of finished trials, including those of earlier calls.
    """

    settings: TrainSettings
    value: float
    trials: int


def search_settings(
    examples: Examples,
    folder: str | Path,
    *,
    trials: int = 20,
    settings: TrainSettings | None = None,
    metric: str | None = None,
    space: Mapping[str, Range] | None = None,
    validation: Examples | None = None,
    held_out: float = 0.2,
    seed: int = 0,
    progress: Callable[[int, dict[str, Any], float], None] | None = None,
) -> SearchResult:
    """Search training settings: each trial trains one model, and the best is chosen by a metric on held-out rows.

    The study is written to ``folder`` after every trial. Call the function again with the same folder to resume, also after a
    kill: the next trials are those of an uninterrupted search.

    Args:
        examples: rows for training and, without ``validation``, for evaluation.
        folder: the folder of the study.
        trials: the total number of finished trials, including those of earlier calls.
        settings: the fixed settings; None uses the defaults.
        metric: the metric to optimise, a name of ``manyhot.METRICS``; None uses that of the settings, or micro-F1.
        space: setting to ``(low, high)``, ``(low, high, "log")`` or a list of choices; None is ``default_space``. Ranges of
            whole numbers are searched in whole numbers.
        validation: the rows to evaluate on; None holds out a share of ``examples``.
        held_out: the share of held-out rows.
        seed: the seed of the split and of the search.
        progress: called with the number of each finished trial, its settings and its value.

    Returns:
        A ``SearchResult``.

    Example:
        >>> import tempfile
        >>> from manyhot import SparseLabels
        >>> labels = SparseLabels.from_lists([[0], [1], [0, 1], []] * 15, num_labels=2)
        >>> texts = ["salt the water", "slice the bread", "bread with salt", "boil the water"] * 15
        >>> rows = Examples(labels, ("salt", "bread"), texts=texts)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = search_settings(rows, folder, trials=2, space={"smoothing": (0.0, 0.2)})
        >>> found.trials, found.value > 0.8
        (2, True)
    """
    check_at_least("search_settings", "trials", trials, 1)
    if settings is not None and settings.budget:
        raise ValueError(
            f"search_settings: `settings` must have no budget: each trial is one training; got {settings.budget!r}."
        )
    settings = settings or TrainSettings()
    metric = parse_metric(metric or settings.stop_metric).text
    space = default_space(examples, settings) if space is None else space
    _check_space(space, settings)
    if validation is None:
        rows = stratified_split(examples.labels, test_size=held_out, seed=seed)
        examples, validation = examples[rows[0]], examples[rows[1]]
    study = _open_study(Path(folder), settings, metric, space)
    while (done := _finished(study)) < trials:
        # The proposal depends on the finished trials and on this seed alone, so a resumed search proposes the same trials.
        study.sampler = optuna.samplers.TPESampler(seed=seed * 1_000_003 + done)
        trial = study.ask()
        tried = {name: _suggest(trial, name, given) for name, given in space.items()}
        try:
            value = evaluate(train(examples, replace(settings, **tried)), validation, [metric])[metric]
        except ValueError:
            if not done:
                # Training rejects the settings or the rows, so there is nothing to resume.
                _discard(Path(folder))
            raise
        study.tell(trial, value)
        if progress is not None:
            progress(done, tried, value)
    return SearchResult(replace(settings, **study.best_params), float(study.best_value), _finished(study))


def default_space(examples: Examples, settings: TrainSettings) -> dict[str, Range]:
    """The default search space: settings that apply to the loss, the body and the rows.

    Settings that differ from their defaults stay fixed. The learning rate is not searched if training chooses it.

    Args:
        examples: rows to train on.
        settings: the fixed settings.

    Example:
        >>> from manyhot import SparseLabels
        >>> rows = Examples(SparseLabels.from_lists([[0], [1]], num_labels=2), ("a", "b"), texts=["one", "two"])
        >>> sorted(default_space(rows, TrainSettings()))
        ['ngrams', 'pos_weight', 'smoothing']
        >>> sorted(default_space(rows, TrainSettings(smoothing=0.05)))
        ['ngrams', 'pos_weight']
    """
    loss, kind = get_loss(settings.usual_loss), examples.kind
    named = ENCODER if settings.encoder else settings.model
    # The last of the bodies that ``auto`` may choose: the others are only for sparse rows.
    body = next(
        (entry for entry in reversed(bodies_for(kind)) if named == entry.name or (named == AUTO_BODY and entry.automatic)), None
    )
    space: dict[str, Range] = {}
    if loss.why_not("smoothing") is None:
        space["smoothing"] = (0.0, 0.1)
    if loss.why_not("pos_weight") is None:
        space["pos_weight"] = (1.0, 100.0, "log")
    if kind == "texts" and body is not None and not body.inputs:
        space["ngrams"] = (1, 2)
    if body is not None and body.learning_rate is not None:
        space["learning_rate"] = (body.learning_rate / 10, body.learning_rate * 10, "log")
    if body is not None and body.hidden and not is_sparse(examples):
        space |= {"dropout": (0.0, 0.5), "hidden": (64, 512, "log")}
    usual = TrainSettings().to_dict()
    return {name: given for name, given in space.items() if settings.to_dict()[name] == usual[name]}


def _open_study(folder: Path, settings: TrainSettings, metric: str, space: Mapping[str, Range]) -> Any:
    make_folder(folder)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    backend = optuna.storages.journal.JournalFileBackend(str(folder / FILE))
    up = parse_metric(metric).info.direction == "up"
    study = optuna.create_study(
        study_name=STUDY,
        storage=optuna.storages.JournalStorage(backend),
        direction="maximize" if up else "minimize",
        load_if_exists=True,
    )
    asked = {"settings": settings.to_dict(), "metric": metric, "space": {name: list(given) for name, given in space.items()}}
    before = study.user_attrs.get("asked")
    if before is None:
        study.set_user_attr("asked", asked)
    elif before != asked:
        raise ValueError(
            f"search_settings: the study in {str(folder)!r} was started with other settings, another metric or another space."
            " Use the same ones again, or choose another folder."
        )
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # killed during the trial
    return study


def _discard(folder: Path) -> None:
    for path in folder.glob(f"{FILE}*"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _finished(study: Any) -> int:
    return len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))


def _check_space(space: Mapping[str, Range], settings: TrainSettings) -> None:
    known = settings.to_dict()
    for name, given in space.items():
        if name not in known:
            raise ValueError(f"search_settings: `space` names an unknown setting {name!r}.{nearest(name, known)}")
        if isinstance(given, str) or len(given) < 1 or (isinstance(given, tuple) and len(given) not in (2, 3)):
            raise ValueError(f"search_settings: `space` of {name!r} must be (low, high), (low, high, 'log') or a list.")
        for value in given if isinstance(given, list) else given[:2]:
            TrainSettings.from_dict({**known, name: value})


def _suggest(trial: Any, name: str, given: Range) -> Any:
    if isinstance(given, list):
        return trial.suggest_categorical(name, given)
    low, high = given[0], given[1]
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=len(given) == 3)
    return trial.suggest_float(name, low, high, log=len(given) == 3)
