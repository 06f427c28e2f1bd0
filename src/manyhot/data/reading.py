"""How the training files of a model were read. This is saved with the model, so that other files are read the same way; a file
that does not fit is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from manyhot._suggest import nearest
from manyhot.data.examples import Examples, Source
from manyhot.data.files.problems import DataError
from manyhot.data.formats.registry import formats
from manyhot.data.tables.decimals import MARKS


@dataclass(frozen=True)
class Reading:
    """The choices made when the training files were read.

    Args:
        text: the columns whose texts are joined.
        features: the feature columns of a table.
        nominal: the categorical feature columns, each with its categories in the order of the features.
        labels: the column of each row's labels, or the columns of one label each.
        separator: between the labels of a delimited string.
        decimal: the decimal mark of numbers in CSV and TSV, if it is a comma.
        first_index: whether features without names were counted from 0 or from 1 (svmlight).

    Example:
        >>> source = Source("pets.csv", "csv", {"features": ["size", "colour"], "nominal": {"colour": ["black", "red"]}})
        >>> reading = Reading.from_sources([source])
        >>> Reading.from_json(reading.to_json()) == reading
        True
        >>> reading.options()
        {'features': ['size', 'colour'], 'nominal': {'colour': ['black', 'red']}}
    """

    text: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    nominal: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: str | tuple[str, ...] | None = None
    separator: str | None = None
    decimal: str | None = None
    first_index: int | None = None

    @classmethod
    def of(cls, examples: Examples) -> Reading:
        """How these examples were read; empty for examples that do not come from files."""
        return cls.from_sources(examples.source)

    @classmethod
    def from_sources(cls, sources: Sequence[Source]) -> Reading:
        """The choices that all files share; categorical columns have the categories of all files."""
        entries = formats("labels")
        tables = [source for source in sources if source.format in entries and entries[source.format].columns]
        nominal: dict[str, dict[str, None]] = {}
        for source in sources:
            for column, values in source.chosen.get("nominal", {}).items():
                nominal.setdefault(column, {}).update(dict.fromkeys(values))
        return cls(
            text=_tuple(_common(tables, "text")),
            features=_tuple(_common(tables, "features")),
            nominal={column: tuple(values) for column, values in nominal.items()},
            labels=_frozen(_common(tables, "labels")),
            separator=_common(tables, "separator"),
            decimal=_common(tables, "decimal"),
            first_index=_common(sources, "first_index"),
        )

    def options(self, *, labels: bool = False) -> dict[str, Any]:
        """Arguments of ``ReadOptions`` that read other files the same way; with ``labels`` their labels too."""
        found: dict[str, Any] = {"text": list(self.text)} if self.text else {}
        if self.features:
            nominal = {name: list(values) for name, values in self.nominal.items()}
            found |= {"features": list(self.features), "nominal": nominal}
        if self.decimal is not None:
            found["decimal"] = self.decimal
        if self.first_index is not None:
            found["index_base"] = self.first_index
        if labels and self.labels is not None:
            found["labels"] = self.labels if isinstance(self.labels, str) else list(self.labels)
            found |= {"separator": self.separator} if self.separator else {}
        return found

    def check_features(self, examples: Examples, names: Sequence[str] | None, *, sparse: bool) -> None:
        """Raise an error that names the missing features if examples do not have those of the model.

        Args:
            examples: rows with features.
            names: the model's features; None if they have no names.
            sparse: whether the model was trained on sparse rows, in which a missing feature is 0. In a table every column must
                exist; a category that did not occur in training counts as 0.
        """
        if names is None or examples.feature_names is None:
            return
        own = set(examples.feature_names)
        if sparse:
            if own and len(examples) and not any(name in own for name in names):
                raise self._refused(examples, list(names)[:5])
            return
        values = {f"{column}={value}": column for column, each in self.nominal.items() for value in each}
        there = {values[name] for name in own if name in values}
        lost = [values.get(name, name) for name in names if name not in own and values.get(name) not in there]
        if lost:
            raise self._refused(examples, list(dict.fromkeys(lost)))

    def to_json(self) -> dict[str, Any]:
        """The choices for a model's JSON; choices that were not made are left out."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found["nominal"] = {name: list(values) for name, values in self.nominal.items()}
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
        return {name: value for name, value in listed.items() if value not in (None, [], {})}

    @classmethod
    def from_json(cls, data: Any) -> Reading:
        """From the result of ``to_json``; ValueError for anything else."""
        if not isinstance(data, dict) or data.keys() - {each.name for each in fields(cls)}:
            raise ValueError(
                f"`reading` must be an object of {', '.join(each.name for each in fields(cls))}; got {data!r:.80}."
            )
        lists = {name: data.get(name, []) for name in ("text", "features")}
        nominal, labels = data.get("nominal", {}), data.get("labels")
        wrong = [name for name, value in lists.items() if not _is_names(value)]
        wrong += [] if isinstance(nominal, dict) and all(map(_is_names, nominal.values())) else ["nominal"]
        wrong += [] if labels is None or isinstance(labels, str) or _is_names(labels) else ["labels"]
        wrong += [] if isinstance(data.get("separator"), str | None) else ["separator"]
        wrong += [] if data.get("decimal") in (None, *MARKS) else ["decimal"]
        first = data.get("first_index")
        wrong += [] if first is None or (type(first) is int and first in (0, 1)) else ["first_index"]
        if wrong:
            raise ValueError(f"`reading.{wrong[0]}` must be what `Reading.to_json` wrote; got {data[wrong[0]]!r:.80}.")
        return cls(
            text=tuple(lists["text"]),
            features=tuple(lists["features"]),
            nominal={name: tuple(values) for name, values in nominal.items()},
            labels=_frozen(labels),
            separator=data.get("separator"),
            decimal=data.get("decimal"),
            first_index=first,
        )

    def _refused(self, examples: Examples, lost: Sequence[str]) -> DataError:
        files = ", ".join(dict.fromkeys(source.path for source in examples.source)) or "the examples"
        there = list(examples.feature_names or ())
        shown = ", ".join(map(repr, there[:8])) + (", ..." if len(there) > 8 else "")
        more = f", ... ({len(lost)} in all)" if len(lost) > 8 else ""
        return DataError(
            f"must have the features that the model was trained on; missing: {', '.join(map(repr, lost[:8]))}{more}."
            f"{nearest(lost[0], there)} The features here are {shown}.",
            file=files,
        )


def _common(sources: Sequence[Source], name: str) -> Any:
    """The value that all sources with a value share; None if they differ."""
    values = [source.chosen[name] for source in sources if source.chosen.get(name) is not None]
    return values[0] if values and all(value == values[0] for value in values) else None


def _tuple(value: Any) -> tuple[str, ...]:
    return () if value is None else tuple(value)


def _frozen(value: Any) -> str | tuple[str, ...] | None:
    return tuple(value) if isinstance(value, list) else value


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
