"""Refused requests and their JSON."""

from __future__ import annotations

import json
from typing import Any


class Refusal(Exception):  # noqa: N818 - an answer, not a fault of the server
    """A request that is refused.

    Args:
        status: the HTTP status.
        reason: a sentence for the client: what was wanted, what was received, what to do.
        close: whether to close the connection after the response.
    """

    def __init__(self, status: int, reason: str, *, close: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.close = status, reason, close

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of the response."""
        found = [("content-type", "application/json"), ("content-length", str(len(self.body())))]
        found += [("retry-after", "1")] if self.status in (429, 503) else []
        return [*found, ("connection", "close")] if self.close else found

    def body(self) -> bytes:
        """The JSON body of the response."""
        return json_body({"status": self.status, "error": self.reason})


def json_body(data: Any) -> bytes:
    """Compact JSON; all numbers must be finite."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
