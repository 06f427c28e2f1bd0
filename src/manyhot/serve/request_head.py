"""Checks of the first line and the headers of a request, before its body is read."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, MutableMapping
from typing import Any

from manyhot.serve.refusals import Refusal
from manyhot.serve.settings import ServeSettings

# Largest size of a request's first line and headers, in bytes.
MAX_HEADERS = 32 << 10
# The values of Sec-Fetch-Site that browsers send with requests of pages from another origin.
OTHER_ORIGINS = (b"cross-site", b"same-site")
# A name or an address, optionally in brackets, with an optional port.
HOST = re.compile(r"(\[[0-9a-f:.]*\]|[^:\[\]]*)(?::\d*)?")


def check_head(scope: MutableMapping[str, Any], hosts: Collection[str] | None) -> None:
    """Refuse headers that are too long, that give the length twice, or that come from another site or for an unknown host.

    Args:
        scope: the ASGI scope of the request.
        hosts: the host names that are allowed besides localhost and IP addresses; None allows all.
    """
    headers, given = scope["headers"], dict(scope["headers"])
    line = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    # The parser limits only incomplete headers; headers that arrive in one piece pass it.
    if line + sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEADERS:
        raise Refusal(400, f"the headers must have at most {MAX_HEADERS:,} bytes; got more.")
    if b"transfer-encoding" in given and b"content-length" in given:
        # Request smuggling: a proxy may use one of them and this server the other, and so see different requests.
        raise Refusal(400, "a request must have Content-Length or Transfer-Encoding; got both.", close=True)
    if scope["method"] not in ("GET", "HEAD") and given.get(b"sec-fetch-site") in OTHER_ORIGINS:
        raise Refusal(403, "requests from pages of another site are not allowed.")
    # HTTP/1.0 clients may omit Host; browsers do not.
    asked = given.get(b"host", b"localhost").decode("latin-1").lower()
    if hosts is not None and not _is_known(asked, hosts):
        raise Refusal(421, f"the host must be localhost or an IP address; got {asked[:60]!r}. Add the name to --hosts.")


def allowed_hosts(settings: ServeSettings, address: str) -> frozenset[str] | None:
    """The host names that requests may have; None for all.

    A server on a loopback address serves this machine only. Checking the host name prevents DNS rebinding: a web site points
    its own name at the loopback address, and a browser then lets its pages send requests to this server.
    """
    names = frozenset(name.strip().lower() for name in settings.hosts.split(",") if name.strip())
    if "*" in names or not (names or ipaddress.ip_address(address).is_loopback):
        return None
    return names


def _is_known(host: str, names: Collection[str]) -> bool:
    found = HOST.fullmatch(host)
    name = found[1] if found else ""
    if name in names or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
