"""What the first line and the headers of a request must be; the rest of it is not read otherwise."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, MutableMapping
from typing import Any

from manyhot.serve.refusals import Refusal
from manyhot.serve.settings import ServeSettings

# Bytes of a request's first line and headers at most.
MAX_HEADERS = 32 << 10
# What browsers send with a request that a page of another origin makes.
ELSEWHERE = (b"cross-site", b"same-site")
# A name or an address, perhaps in brackets, and perhaps a port.
HOST = re.compile(r"(\[[0-9a-f:.]*\]|[^:\[\]]*)(?::\d*)?")


def check_head(scope: MutableMapping[str, Any], hosts: Collection[str] | None) -> None:
    """Refuse a request whose head is too long, has two lengths, or was sent on behalf of another site.

    Args:
        scope: of the request, as ASGI has it.
        hosts: the names that a request may ask for beside addresses and localhost; None takes all.
    """
    headers, given = scope["headers"], dict(scope["headers"])
    line = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    # The parser counts what it waits for; a head that comes in one piece passes it.
    if line + sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEADERS:
        raise Refusal(400, f"the headers must have at most {MAX_HEADERS:,} bytes; got more.")
    if b"transfer-encoding" in given and b"content-length" in given:
        # A proxy may go by the one and this server by the other, and what follows is another's request.
        raise Refusal(400, "a request must have a length or come in chunks; got both.", close=True)
    if scope["method"] not in ("GET", "HEAD") and given.get(b"sec-fetch-site") in ELSEWHERE:
        raise Refusal(403, "a page of another site may not ask this server.")
    asked = given.get(b"host", b"localhost").decode("latin-1").lower()
    # HTTP/1.0 may leave it out; browsers do not.
    if hosts is not None and not _is_known(asked, hosts):
        raise Refusal(421, f"requests must be for localhost or an address; got {asked[:60]!r}. Add the name to --hosts.")


def allowed_hosts(settings: ServeSettings, address: str) -> frozenset[str] | None:
    """The names that requests to a server may ask for; None for all.

    A server on a loopback address is meant for this machine. A web site can give its own name that address, and its pages
    then are pages of this server for a browser, unless the server looks at the name.
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
