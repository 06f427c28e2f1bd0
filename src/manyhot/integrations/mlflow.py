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
# MLflow runs this code to create the model, so that nothing is pickled.
CODE = """from mlflow.models import set_model

from manyhot.integrations.mlflow import BundleModel

set_model(BundleModel())
"""
# MLflow has its own limits on requests.
NO_LIMITS = ServeSettings(max_characters=1 << 40, max_pixels=1 << 40)
ASKED = SimpleNamespace(probabilities=True, scores=False, top=0)


class BundleModel(pyfunc.PythonModel):
    """The model that MLflow serves: it takes rows and returns one dict per row, in the format of ``manyhot serve``.

    A label model returns ``{"labels": [...], "probabilities": [...]}``, the predicted labels, highest score first. A span model
    returns ``{"spans": [{"type", "start", "end", "probability"}, ...]}``.
    """

    served: Served

    def load_context(self, context: Any) -> None:
        """Read the bundle among the artifacts of the model."""
        self.served = load_served(Path(context.artifacts[ARTIFACT]))

    # `model_input` has no type hint: MLflow would take it for a schema, and these rows have none.
    def predict(  # type: ignore[no-untyped-def]
        self,
        context: Any,
        model_input,
        params: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """The predictions for rows.

        Args:
            context: MLflow's context; not used.
            model_input: texts as a list, an array or a data frame with one column; features as an array ``[N, D]``, a list of
                rows or a data frame with the model's column names; images as channels of rows of numbers from 0 to 255.
            params: MLflow's parameters; not used.
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
        folder: a bundle, or the run folder of a label or span model.
        name: the name of the model in MLflow.
        **settings: further settings of ``mlflow.pyfunc.log_model``, such as ``registered_model_name``.

    Returns:
        The result of ``log_model``; pass its ``model_uri`` to ``mlflow.pyfunc.load_model``.
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
