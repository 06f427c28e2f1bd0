"""Limits and timing of a server."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from manyhot._checks import check_at_least
from manyhot._suggest import nearest


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class ServeSettings:
    """Limits and timing of a server; flags of ``manyhot serve`` are made from them.

    Example:
        >>> ServeSettings(max_rows=8).max_rows
        8
        >>> ServeSettings(max_rows=0)
        Traceback (most recent call last):
            ...
        ValueError: ServeSettings: `max_rows` must be a number >= 1; got 0.
    """

    max_body: int = _setting(2 << 20, "most bytes in the body of a request")
    max_rows: int = _setting(256, "most rows in a request")
    max_characters: int = _setting(100_000, "most characters in a text")
    max_pixels: int = _setting(1 << 18, "most numbers in an image, all channels together")
    max_labels: int = _setting(1000, "largest `top` in a request")
    explain_rows: int = _setting(8, "most rows in a request to /explain")
    max_waiting: int = _setting(1024, "most rows in the queue; requests beyond it get 429")
    max_connections: int = _setting(1024, "most open connections")
    timeout: float = _setting(30.0, "seconds until an unanswered request gets 503")
    receive_timeout: float = _setting(
        10.0, "seconds to receive a request, or the next 64 KiB of it, and longest pause in reading a response"
    )
    batch_rows: int = _setting(256, "most rows in one batch")
    batch_wait: float = _setting(2.0, "longest time in milliseconds that a request waits for others to form a batch")
    drain: float = _setting(0.5, "seconds after a stop signal in which new requests are still accepted")
    grace: float = _setting(1.0, "seconds after which a stopping server closes idle connections")
    reload_every: float = _setting(2.0, "seconds between checks for a new model in the folder, 0 for never")
    hosts: str = _setting(
        "",
        "host names that requests may have, separated by commas, or * for all. Default: localhost and IP addresses on a"
        " loopback address, otherwise all",
    )
    threads: int = _setting(0, "CPU threads per worker. Default: the cores divided by the number of workers")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "hosts":
                if not isinstance(value, str):
                    raise ValueError(f"ServeSettings: `hosts` must be names separated by commas; got {value!r}.")
                continue
            zero = each.name in ("batch_wait", "drain", "reload_every", "threads")
            if isinstance(each.default, int) and isinstance(value, float):
                raise ValueError(f"ServeSettings: `{each.name}` must be a whole number; got {value!r}.")
            check_at_least("ServeSettings", each.name, value, 0 if zero or isinstance(each.default, float) else 1)

    def to_dict(self) -> dict[str, Any]:
        """As a dict."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ServeSettings:
        """Settings from a dict of ``to_dict``; unknown names are an error."""
        known = [each.name for each in fields(cls)]
        for name in data:
            if name not in known:
                raise ValueError(f"ServeSettings: unknown setting {name!r}.{nearest(name, known)}")
        return cls(**data)
