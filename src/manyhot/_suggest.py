"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, words: Iterable[str]) -> str:
    """The sentence ` Did you mean 'x'?`, or an empty string if no word is close.

    Initials (`--lr` for `--learning-rate`) and prefixes come before similarity, which is not used for one or two letters.
    """
    known, bare = list(words), word.strip("-_").lower()
    parts = {each: each.strip("-_").lower().replace("_", "-").split("-") for each in known}
    initials = [each for each in known if len(parts[each]) > 1 and "".join(part[:1] for part in parts[each]) == bare]
    begun = [each for each in known if len(bare) > 1 and "-".join(parts[each]).startswith(bare)]
    # Compare without dashes, which every flag has. Short words need a lower cutoff: one wrong letter of three is a third.
    cutoff = 0.6 if len(bare) < 6 else 0.7
    words_of = {"-".join(parts[each]): each for each in reversed(known)}
    alike = difflib.get_close_matches(bare, words_of, n=1, cutoff=cutoff) if len(bare) > 2 else []
    alike = [words_of[each] for each in alike]
    close = initials or begun or alike
    return f" Did you mean {close[0]!r}?" if close else ""
