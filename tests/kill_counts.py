"""How many kills a test makes, divided into parts that run side by side.

A test makes a few, or as many as the environment's MANYHOT_KILLS says (``make test-kills``).
"""

import os

import pytest

# Kills of one part.
PART = 10


def in_parts(usual):
    """Mark a test that takes ``part``, a number, and ``kills``, its share of the ``usual`` ones or of those asked for."""
    wanted = int(os.environ.get("MANYHOT_KILLS", usual))
    values = [(part, min(PART, wanted - first)) for part, first in enumerate(range(0, wanted, PART))]
    return pytest.mark.parametrize(("part", "kills"), values, ids=[f"part{part}" for part, _ in values])
