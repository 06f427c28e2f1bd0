"""MLflow: a bundle as a ``pyfunc`` model, for texts, tables of features, images and spans. Nothing is pickled."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from manyhot.integrations.registry import framework
from manyhot.serve.refusals import Refusal
from manyhot.serve.served import Served, load_served
from manyhot.serve.settings import ServeSettings
from manyhot.training.run.bundle_folder import model_folder

framework("mlflow")

from mlflow import pyfunc  # noqa: E402

ARTIFACT = "bundle"
# What MLflow runs to make the model: code instead of a pickled object.
CODE = """from mlflow.models import set_model

from manyhot.integrations.mlflow import BundleModel

set_model(BundleModel())
"""
# MLflow has limits of its own for what a client may send.
NO_LIMITS = ServeSettings(max_characters=1 << 40, max_pixels=1 << 40)
ASKED = SimpleNamespace(probabilities=True, scores=False, top=0)


class BundleModel(pyfunc.PythonModel):
    """What MLflow serves: rows in, one dict a row out, as ``manyhot serve`` answers.

    A model of labels gives ``{"labels": [...], "probabilities": [...]}``, the predicted labels from the best on; a span model
    gives ``{"spans": [{"type", "start", "end", "probability"}, ...]}``.
    """

    served: Served

    def load_context(self, context: Any) -> None:
        """Read the bundle among the artifacts of the model."""
        self.served = load_served(Path(context.artifacts[ARTIFACT]))

    # MLflow takes the type hint of `model_input` for a schema; rows have none that it could check.
    def predict(  # type: ignore[no-untyped-def]
        self,
        context: Any,
        model_input,
        params: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """The answers to rows.

        Args:
            context: of MLflow; not used.
            model_input: texts as a list, an array or a data frame with one column; features as an array ``[N, D]``, a list of
                rows or a data frame with the model's column names; images as channels of rows of numbers from 0 to 255.
            params: of MLflow; not used.
        """
        del context, params
        try:
            rows = self.served.check(_rows_of(model_input, texts=self.served.kind in ("texts", "spans")), NO_LIMITS)
        except Refusal as error:
            raise ValueError(f"BundleModel: {error.reason}") from None
        return [self.served.answer(found, ASKED) for found in self.served.compute(rows)] if rows else []


def log_bundle(folder: str | Path, *, name: str = "model", **settings: Any) -> Any:
    """Log the model of a run or bundle ``folder`` to the active run of MLflow, ready for ``mlflow models serve``.

    Args:
        folder: a bundle, or the folder of a run of labels or spans.
        name: of the model in MLflow.
        **settings: further settings of ``mlflow.pyfunc.log_model``, such as ``registered_model_name``.

    Returns:
        What ``log_model`` gives; its ``model_uri`` is for ``mlflow.pyfunc.load_model``.
    """
    bundle = model_folder(Path(folder))
    with tempfile.TemporaryDirectory() as place:
        code = Path(place) / "bundle_model.py"
        code.write_text(CODE, encoding="utf-8")
        given = {"pip_requirements": ["manyhot"], **settings}
        return pyfunc.log_model(name=name, python_model=str(code), artifacts={ARTIFACT: str(bundle)}, **given)


def _rows_of(given: Any, *, texts: bool) -> list[Any]:
    """The rows of MLflow's input; their values are not checked here."""
    if texts and isinstance(given, str):
        return [given]
    if hasattr(given, "columns"):
        if texts:
            if len(given.columns) != 1:
                raise ValueError(
                    f"BundleModel: a data frame of texts must have one column; got {list(map(str, given.columns))}."
                )
            return [str(text) for text in given.iloc[:, 0]]
        named = all(isinstance(column, str) for column in given.columns)
        return list(given.to_dict("records") if named else given.to_numpy(dtype=float).tolist())
    if isinstance(given, dict):
        columns = [np.atleast_1d(np.asarray(values, dtype=object)).tolist() for values in given.values()]
        if texts and len(columns) != 1:
            raise ValueError(f"BundleModel: a dict of texts must have one column; got {list(given)}.")
        given = columns[0] if texts else [dict(zip(given, row, strict=True)) for row in zip(*columns, strict=True)]
    rows: Sequence[Any] = given.tolist() if isinstance(given, np.ndarray) or hasattr(given, "tolist") else list(given)
    return [str(text) for text in rows] if texts else list(rows)
