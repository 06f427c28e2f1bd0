"""A switch for an engine: a failure turns the engine off for the rest of the process, with one warning."""

from __future__ import annotations

import warnings


class Gate:
    """The gate of one engine.

    Args:
        engine: its name, for the warning.
        scores: the scores that it serves, for the warning.

    Example:
        >>> gate = Gate("toy", "CPU")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     gate.close(RuntimeError("no such instruction"))
        ...     gate.close(RuntimeError("again"))
        >>> len(caught), gate.failure
        (1, 'RuntimeError: again')
    """

    def __init__(self, engine: str, scores: str) -> None:
        self.engine, self.scores = engine, scores
        self.failure = ""
        self.warned = False

    def warn_once(self, reason: str) -> None:
        """Warn that the slower plain form is used; only the first call warns."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"manyhot: the {self.engine} engine is off, and {self.scores} scores take the slower plain form: {reason}",
                RuntimeWarning,
                stacklevel=3,
            )

    def close(self, failure: BaseException) -> None:
        """Turn the engine off for the rest of the process."""
        cause = failure.__cause__ or failure
        self.failure = f"{type(cause).__name__}: {cause}".splitlines()[0][:300]
        self.warn_once(self.failure)
