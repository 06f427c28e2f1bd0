"""What surrounds the capture of a step; the steps themselves are tested with the fit."""

import gc
import weakref

import pytest

from manyhot.training.rows.wide.captured_step import _without_collection


class Cycle:
    """Freed by the garbage collector alone."""

    def __init__(self):
        self.own = self


def test_garbage_is_collected_before_a_capture_and_not_during_it():
    """The graph of an earlier fit is part of a cycle; freeing it during a capture makes CUDA refuse the capture."""
    before = weakref.ref(Cycle())
    with _without_collection():
        assert before() is None
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_failed_capture_turns_collection_on_again():
    with pytest.raises(RuntimeError, match="refused"), _without_collection():
        raise RuntimeError("refused")
    assert gc.isenabled()
