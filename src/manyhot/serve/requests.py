"""The bodies of requests, checked by pydantic; the first problem is reported in one sentence."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from manyhot.serve.refusals import Refusal
from manyhot.serve.served import shortened
from manyhot.serve.settings import ServeSettings

Number = Annotated[float, Field(allow_inf_nan=False)]
Byte = Annotated[int, Field(ge=0, le=255)]
INPUTS: dict[str, tuple[Any, str]] = {
    "texts": (list[str], "texts"),
    "spans": (list[str], "texts"),
    "features": (
        list[list[Number | None] | dict[str, Number | None]],
        "rows of features, as lists or by name; null is missing",
    ),
    "images": (list[list[list[list[Byte]]]], "images, as channels of rows of numbers from 0 to 255"),
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
            Field(0, ge=0, le=settings.max_labels, description="the best labels of each row, whatever the rule says"),
        ),
        probabilities=(bool, Field(True, description="give the probability of each label")),
        scores=(bool, Field(False, description="give the score of each label")),
    )
    explain = create_model(
        "ExplainRequest",
        __base__=_Body,
        inputs=(listed, Field(description=words, min_length=1)),
        labels=(list[str] | None, Field(None, min_length=1, max_length=20, description="the labels to explain")),
        top=(int, Field(3, ge=1, le=20, description="labels at least: the predicted ones and the best others")),
        most=(int, Field(20, ge=1, le=200, description="contributions listed for each label")),
        steps=(int, Field(1, ge=1, le=32, description="points for the gradient of bodies that are not linear")),
    )
    return predict, explain


def parse(body: bytes, model: type[BaseModel], *, max_rows: int) -> Any:
    """A checked body, or a refusal that names the first thing that is wrong."""
    try:
        found = model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"] if not _branch(part))
        raise Refusal(422, f"{shortened(where.lstrip('.'))[1:-1] or 'the body'}: {first['msg']}.") from None
    rows = len(found.inputs)  # type: ignore[attr-defined]
    if rows > max_rows:
        raise Refusal(413, f"inputs must have at most {max_rows:,} rows; got {rows:,}. Send them in parts.")
    return found


def _branch(part: Any) -> bool:
    """Whether a part of an error's location names a branch of a union, which means nothing to a client."""
    return isinstance(part, str) and ("[" in part or part in ("float", "none"))
