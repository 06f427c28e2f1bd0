"""``classifier.json``, which ``ManyhotClassifier.save`` writes beside the model: the form in which predictions are returned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from manyhot.targets import BINARY, INDICATORS, MULTICLASS, NAMES
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.bundle_folder import reading
from manyhot.training.run.schema import TABLE, TEXT, Kind, check_schema, choice, listed, parse_json, whole

FORMAT = "manyhot-classifier-1"
DESCRIPTION = "classifier.json"
_CLASSES = "a list of numbers or texts"
SCHEMA = {
    "format": choice(FORMAT),
    "settings": TABLE,
    "target": choice(INDICATORS, NAMES, BINARY, MULTICLASS),
    "classes": Kind(
        _CLASSES, lambda value: isinstance(value, list) and all(isinstance(one, (str, int, float)) for one in value)
    ),
    "dtype": Kind("str or a type of numbers", lambda value: isinstance(value, str) and value[1:2] in ("b", "i", "u", "f", "t")),
    "features": whole(1).or_none(),
    "feature_names": listed(TEXT),
}


def read_classifier(who: str, path: Path, num_labels: int) -> dict[str, Any]:
    """The content of the file; it is checked, because files are not trusted."""
    with reading(who, path):
        data = parse_json(path.read_text(encoding="utf-8") if path.is_file() else "")
        check_schema(DESCRIPTION, data, SCHEMA)
        if len(data["classes"]) != num_labels + (data["target"] == BINARY):
            raise ValueError(f"classes must fit the model's {num_labels} labels; got {len(data['classes'])}")
        TrainSettings.from_dict(data["settings"])
    return dict(data)
