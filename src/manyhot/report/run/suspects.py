"""Labels of the evaluated rows that look wrong or missing."""

from __future__ import annotations

from typing import Any

from manyhot.curation.suspects import find_suspects
from manyhot.report.run.judged import Judged, Origin, rounded
from manyhot.report.run.mistakes import id_and_text

MOST = 25
# Suspects with less doubt are not listed.
LEAST_DOUBT = 0.25
# With more scores than this, the report lists no suspects; ``manyhot suspects`` does.
MOST_ENTRIES = 20_000_000
# Fewer rows are not enough to estimate how often labels are wrong.
LEAST_ROWS = 50


def measure_suspects(judged: Judged, origin: Origin) -> dict[str, Any] | None:
    """``{"listed": suspects, "expected": their mean doubt}``; None if there are too few rows, or too many scores."""
    few = len(judged.labels) < LEAST_ROWS or not len(judged.labels.indices)
    if few or judged.listed or judged.all_scores.numel() > MOST_ENTRIES:
        return None
    scores = judged.all_scores
    # A score that is not finite says nothing about a label.
    where = scores.isfinite() if judged.where is None else judged.where & scores.isfinite()
    found = find_suspects(scores.nan_to_num(), judged.labels, most=MOST, where=where)
    kept = [each for each in found if each.doubt >= LEAST_DOUBT]
    listed = []
    for each in kept:
        place = origin.place(each.row)
        told: dict[str, Any] = {"row": place + 1, "label": judged.label_names[each.label], "looks": each.kind}
        told |= {"probability": rounded([each.probability], 4)[0], "doubt": rounded([each.doubt], 4)[0]}
        listed.append(told | id_and_text(origin.examples, place))
    expected = sum(each.doubt for each in kept) / max(len(kept), 1)
    return {"listed": listed, "expected": rounded([expected], 4)[0]}
