"""The bodies of requests, validated by pydantic. Validation stops at the first error and reports it in one sentence."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema, create_model
from pydantic_core import from_json

from manyhot.explain.contributions import STEPS
from manyhot.serve.refusals import Refusal
from manyhot.serve.served import shortened
from manyhot.serve.settings import ServeSettings

Number = Annotated[float, Field(allow_inf_nan=False)]
Byte = Annotated[int, Field(ge=0, le=255)]

# Validation of a list stops at its first error. A body of 2 MB can have a million errors, which would take 1 GB to list.
Row = Annotated[list[Number | None], Field(fail_fast=True)]
# Cells are checked together with their names in ``served``, also up to the first error.
NamedRow = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "null"}]}}),
]
Rows = Annotated[list[Row | NamedRow], Field(fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]
Line = Annotated[list[Byte], Field(fail_fast=True)]
Plane = Annotated[list[Line], Field(fail_fast=True)]
Picture = Annotated[list[Plane], Field(fail_fast=True)]
Pictures = Annotated[list[Picture], Field(fail_fast=True)]
INPUTS: dict[str, tuple[Any, str]] = {
    "texts": (Texts, "texts"),
    "spans": (Texts, "texts"),
    "features": (Rows, "rows of features, as lists or by name; null is missing"),
    "images": (Pictures, "images, as channels of rows of numbers from 0 to 255"),
}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def request_models(kind: str, settings: ServeSettings) -> tuple[type[BaseModel], type[BaseModel]]:
    """The bodies of ``/predict`` and ``/explain`` for a model that reads ``kind``."""
    listed, words = INPUTS[kind]
    predict = create_model(
        "PredictRequest",
        __base__=_Body,
        inputs=(listed, Field(description=words, min_length=1)),
        top=(
            int,
            Field(0, ge=0, le=settings.max_labels, description="list this many of the best labels or spans, predicted or not"),
        ),
        probabilities=(bool, Field(True, description="return the probability of each label")),
        scores=(bool, Field(False, description="return the score of each label")),
    )
    explain = create_model(
        "ExplainRequest",
        __base__=_Body,
        inputs=(listed, Field(description=words, min_length=1)),
        labels=(Texts | None, Field(None, min_length=1, max_length=20, description="the labels to explain")),
        top=(int, Field(3, ge=1, le=20, description="explain at least this many labels: the predicted, then the best others")),
        most=(int, Field(20, ge=1, le=200, description="largest number of contributions per label")),
        steps=(int, Field(STEPS, ge=1, le=32, description="steps of integrated gradients, for nonlinear bodies")),
    )
    return predict, explain


def parse(body: bytes, model: type[BaseModel], *, max_rows: int) -> Any:
    """The validated body, or a refusal that names the first error."""
    try:
        given = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Refusal(422, f"the body: Invalid JSON: {error}.") from None
    if not isinstance(given, dict):
        raise Refusal(422, 'the body must be a JSON object like {"inputs": [...]}.')
    known = list(model.model_fields)
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise Refusal(422, f"{shortened(unknown)[1:-1]}: unknown field; the fields are {', '.join(known)}.")
    inputs = given.get("inputs")
    if isinstance(inputs, list) and len(inputs) > max_rows:
        raise Refusal(413, f"inputs must have at most {max_rows:,} rows; got {len(inputs):,}. Send them in parts.")
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"] if not _branch(part))
        raise Refusal(422, f"{shortened(where.lstrip('.'))[1:-1] or 'the body'}: {first['msg']}.") from None


def _branch(part: Any) -> bool:
    """Whether a part of an error's location names a branch of a union, which means nothing to a client."""
    return isinstance(part, str) and ("[" in part or part in ("float", "none"))
