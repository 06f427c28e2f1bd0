"""The outermost layer of the server: limits on requests, headers of responses, and counters of both."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from manyhot.serve.counters import PATHS, Counters
from manyhot.serve.refusals import Refusal
from manyhot.serve.request_head import check_head
from manyhot.serve.settings import ServeSettings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
log = logging.getLogger("manyhot.serve")

# The page may load scripts, styles and data from this server only; no other page may frame it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Bytes of a body that a client must send in each --receive-timeout.
PACE = 64 << 10
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """ASGI middleware.

    A body that is too long or too slow is refused before the application sees it; every error becomes a JSON response.

    Args:
        app: the application.
        settings: the limits.
        counters: where requests are counted.
        hosts: the host names that requests may have, None for all (``check_head``).
    """

    def __init__(self, app: App, settings: ServeSettings, counters: Counters, *, hosts: Collection[str] | None = None) -> None:
        self.app, self.settings, self.counters, self.hosts = app, settings, counters, hosts
        self.open = 0
        self.stopping = False

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        told = False

        async def sending(message: Message) -> None:
            nonlocal status, told
            if message["type"] == "http.response.start":
                status, told = int(message["status"]), True
                given = message.get("headers", [])
                closing = [(b"connection", b"close")] if self.stopping and (b"connection", b"close") not in given else []
                message["headers"] = [*given, *HEADERS, *closing]
            await send(message)

        self.open += 1
        self.counters.set("open", self.open)
        try:
            await self._guarded(scope, receive, sending)
        except Refusal as refusal:
            await _refuse(refusal, sending)
        except Exception:
            log.exception("a request failed")
            if not told:
                await _refuse(Refusal(500, "internal server error; see the log of the server."), sending)
        finally:
            self.open -= 1
            self.counters.set("open", self.open)
            path = scope["path"] if scope["path"] in PATHS else "other"
            self.counters.request(path, status, time.perf_counter() - started)

    async def _guarded(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if self.open > self.settings.max_connections:
            raise Refusal(429, f"{self.settings.max_connections:,} requests are in progress already. Try again later.")
        check_head(scope, self.hosts)
        body = await self._body(scope, receive)
        given = False

        async def once() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, once, send)

    async def _body(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        most = self.settings.max_body
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and (len(value) > 18 or int(value) > most):
                raise Refusal(413, f"the body must have at most {most:,} bytes; got {value[:20].decode()}. Send fewer rows.")
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.settings.receive_timeout) as limit:
                started = asyncio.get_running_loop().time()
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(400, "the client disconnected before its request was complete.")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > most:
                        raise Refusal(413, f"the body must have at most {most:,} bytes; got more. Send fewer rows.")
                    parts.append(part)
                    limit.reschedule(started + self.settings.receive_timeout * (1 + size / PACE))
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            seconds = self.settings.receive_timeout
            pace = f"{seconds:g} more for each {PACE >> 10} KiB"
            raise Refusal(408, f"the request must arrive within {seconds:g} seconds, and {pace}; it was too slow.") from None


async def _refuse(refusal: Refusal, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in refusal.headers]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body()})
