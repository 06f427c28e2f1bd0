"""Choice among overlapping candidate spans: greedy by score, or the set with the largest sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyhot._checks import check_at_least, check_choice
from manyhot.engines.terms import INF

MODES = ("nested", "flat", "all")


def compatible_spans(
    ends: Sequence[tuple[int, int]], margins: Sequence[float], mode: str, exact: bool, top_k: int | None
) -> list[int]:
    """Choose a compatible subset of the spans ``(first, last)``, which are sorted by score."""
    if mode == "all":
        return list(range(len(ends)))[:top_k]
    if exact:
        return _schedule(ends, margins, top_k)
    size = max((last for _, last in ends), default=-1) + 2
    # For each token: the end of a chosen span that starts there, and the start of one that ends there.
    reach, origin = [-1] * size, [size] * size
    taken = bytearray(size)
    chosen: list[int] = []
    for place, (first, last) in enumerate(ends):
        if top_k is not None and len(chosen) == top_k:
            break
        if mode == "flat":
            free = not any(taken[first : last + 1])
        else:
            crossed = first < last and (max(reach[first + 1 : last + 1]) > last or min(origin[first:last]) < first)
            free = not crossed
        if free:
            chosen.append(place)
            reach[first], origin[last] = max(reach[first], last), min(origin[last], first)
            if mode == "flat":
                taken[first : last + 1] = b"\x01" * (last + 1 - first)
    return chosen


def _schedule(ends: Sequence[tuple[int, int]], margins: Sequence[float], top_k: int | None) -> list[int]:
    """Weighted interval scheduling: the set of at most ``top_k`` spans without overlap whose margins have the largest sum."""
    count = len(ends)
    order = sorted(range(count), key=lambda place: ends[place][1])
    lasts = np.array([ends[place][1] for place in order])
    before = np.searchsorted(lasts, [ends[place][0] for place in order]) if count else np.zeros(0, dtype=np.int64)
    room = count if top_k is None else min(top_k, count)
    # best[c] is for at most c spans; without a limit one column is enough.
    width = 1 if top_k is None else room + 1
    best = np.zeros((count + 1, width))
    taken = np.zeros((count + 1, width), dtype=bool)
    for step, place in enumerate(order):
        earlier = best[before[step]] if top_k is None else np.concatenate([[-INF], best[before[step], :-1]])
        taken[step + 1] = margins[place] + earlier > best[step]
        best[step + 1] = np.maximum(best[step], margins[place] + earlier)
    chosen, step, column = [], count, width - 1
    while step:
        if taken[step, column]:
            chosen.append(order[step - 1])
            step, column = int(before[step - 1]), column if top_k is None else column - 1
        else:
            step -= 1
    return chosen


def check_mode(who: str, mode: str, exact: bool, top_k: int | None) -> None:
    """Check the arguments of decoding."""
    check_choice(who, "mode", mode, MODES)
    if exact and mode != "flat":
        raise ValueError(f"{who}: `exact` needs mode='flat', in which spans do not overlap; got mode={mode!r}.")
    if top_k is not None:
        check_at_least(who, "top_k", top_k, 1)
