"""Everything that an installation brings has a licence that fits Apache-2.0."""

import re
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement

PERMISSIVE = re.compile(
    r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|ISC|HPND|MPL|Mozilla|CC0|Unlicense|0BSD|Zlib|Artistic)", re.I
)
RESTRICTED = re.compile(r"\b(AGPL|GPL(?!.*exception)|Affero|SSPL|Commons Clause|Non-?Commercial|Proprietary)", re.I)
EXTRAS = ("", "data", "text", "tensorboard")


def closure():
    """Every distribution that manyhot needs here, with its extras that are installed."""
    waiting, seen = [("manyhot", EXTRAS)], {}
    while waiting:
        name, extras = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen and set(extras) <= seen[key]:
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform
        seen[key] = seen.get(key, set()) | set(extras)
        for line in found.requires or ():
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras or ("",)):
                waiting.append((needed.name, ("", *needed.extras)))
    return sorted(seen)


def licence_of(name):
    """What a distribution says of its licence."""
    data = distribution(name).metadata
    said = [data.get("License-Expression"), (data.get("License") or "").splitlines()[0:1]]
    kinds = [line for line in data.get_all("Classifier") or () if line.startswith("License ::")]
    return " ".join(str(each) for each in (*said, *kinds) if each)


def test_every_dependency_has_a_permissive_licence():
    names = closure()
    assert {"torch", "numpy", "scikit-learn", "typer"} <= set(names)
    odd = {}
    for name in names:
        words = licence_of(name)
        if not PERMISSIVE.search(words) or RESTRICTED.search(words):
            odd[name] = words
    assert not odd
