"""Public data sets by name, through scikit-learn's OpenML client."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np

from manyhot._files import NO_ROOM, storage_error
from manyhot.data.examples import Examples, Source
from manyhot.data.files.problems import DataError, shown
from manyhot.data.files.streams import PathLike
from manyhot.data.tables.reorder import index_lists

_TRUTH = {"0": 0.0, "false": 0.0, "no": 0.0, "1": 1.0, "true": 1.0, "yes": 1.0}


def fetch_openml_examples(
    name: str,
    *,
    version: int | str = "active",
    labels: Sequence[str] | None = None,
    folder: PathLike | None = None,
    retries: int = 3,
    delay: float = 1.0,
) -> Examples:
    """Download a multi-label data set from OpenML, or load it from the download cache.

    Args:
        name: the name on OpenML, such as ``emotions`` or ``yeast``.
        version: a number, or ``"active"`` for the oldest active version. Multi-label versions of a data set often have their
            own number.
        labels: the label columns; None takes those that OpenML marks as targets.
        folder: the download cache; None is scikit-learn's data folder.
        retries: how often a request is repeated after a network error.
        delay: seconds between requests.

    Returns:
        ``Examples`` with dense or sparse features; categorical columns become one 0/1 column per value. In a sparse data set,
        scikit-learn's reader drops rows at the end that have neither features nor labels.

    Example:
        >>> examples = fetch_openml_examples("emotions", version=4)  # doctest: +SKIP
    """
    from sklearn.datasets import fetch_openml, get_data_home

    where = f"OpenML data set {name!r}"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            bunch = fetch_openml(
                name,
                version=version,
                data_home=None if folder is None else str(folder),
                target_column="default-target" if labels is None else list(labels),
                as_frame=False,
                parser="liac-arff",
                n_retries=retries,
                delay=delay,
            )
        except HTTPError as error:
            error.close()
            raise DataError(f"the server answered {error.code} {error.reason}. Check name and version.", file=where) from None
        except (URLError, OSError) as error:
            if getattr(error, "errno", None) in NO_ROOM:
                raise storage_error(Path(get_data_home(None if folder is None else str(folder))), error) from None
            reason = getattr(error, "reason", error)
            raise DataError(
                f"could not be downloaded ({reason}). Is there a network? If you have the file, read it with read_examples.",
                file=where,
            ) from None
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise DataError(f"could not be read: {error} Check name and version.", file=where) from None
    notes = [str(warning.message).splitlines()[0] for warning in told if "Retrying" not in str(warning.message)]
    return _examples(bunch, where, notes)


def _examples(bunch: Any, where: str, notes: list[str]) -> Examples:
    target = None if bunch.target is None else np.asarray(bunch.target, dtype=object)
    if target is None or target.size == 0:
        raise DataError("must mark its labels; OpenML marks no target. Name the columns with `labels`.", file=where)
    target = target.reshape(len(target), -1)
    truth = np.full(target.shape, np.nan)
    for place, name in enumerate(bunch.target_names):
        for row, value in enumerate(target[:, place]):
            if value is None or value != value:
                continue
            meaning = _TRUTH.get(str(value).strip().lower().removesuffix(".0"))
            if meaning is None:
                raise DataError(
                    f"a label must be 0 or 1, or TRUE or FALSE; got {shown(value)}. Is it a multi-label version of the set?",
                    file=where,
                    line=row + 1,
                    column=name,
                )
            truth[row, place] = meaning
    features, names = _features(bunch)
    rows, columns = np.nonzero(truth == 1)
    open_rows, open_columns = np.nonzero(np.isnan(truth))
    details = bunch.details
    chosen = {"version": details.get("version"), "id": details.get("id"), "licence": details.get("licence"), "notes": notes}
    return Examples(
        index_lists(rows, columns, truth.shape),
        tuple(bunch.target_names),
        features=features,
        unknown=index_lists(open_rows, open_columns, truth.shape) if len(open_rows) else None,
        feature_names=names,
        source=(Source(where, "openml", {key: value for key, value in chosen.items() if value}),),
        absent="unknown",
    )


def _features(bunch: Any) -> tuple[Any, tuple[str, ...]]:
    """Numeric columns as they are, and categorical columns as one column per value."""
    categories = bunch.categories or {}
    blocks: list[Any] = []
    names: list[str] = []
    dense = isinstance(bunch.data, np.ndarray)
    for place, name in enumerate(bunch.feature_names):
        values = [str(value) for value in categories.get(name, ())]
        column = bunch.data[:, [place]]
        if not values or values == ["0", "1"]:
            blocks.append(column)
            names.append(name)
        else:
            blocks.append((column if dense else column.toarray()) == np.arange(len(values)))
            names += [f"{name}={value}" for value in values]
    if dense:
        return np.concatenate(blocks, axis=1).astype(np.float32), tuple(names)
    from scipy.sparse import csr_matrix, hstack

    return hstack([csr_matrix(block, dtype=np.float32) for block in blocks], format="csr"), tuple(names)
