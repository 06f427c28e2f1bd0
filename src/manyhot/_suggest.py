"""The word that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, words: Iterable[str]) -> str:
    """The sentence ` Did you mean 'x'?`, or nothing where no word is near.

    Initials (`--lr` for `--learning-rate`) and beginnings count before likeness; of one or two letters likeness says nothing.
    """
    known, bare = list(words), word.strip("-_").lower()
    parts = {each: each.strip("-_").lower().replace("_", "-").split("-") for each in known}
    initials = [each for each in known if len(parts[each]) > 1 and "".join(part[:1] for part in parts[each]) == bare]
    begun = [each for each in known if len(bare) > 1 and "-".join(parts[each]).startswith(bare)]
    alike = difflib.get_close_matches(word, known, n=1) if len(bare) > 2 else []
    close = initials or begun or alike
    return f" Did you mean {close[0]!r}?" if close else ""
