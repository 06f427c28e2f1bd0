"""The HTTP protocol of one connection, with its timeouts."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import http
import sys
import termios

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from manyhot.serve.refusals import Refusal

# Seconds for which the rest of a refused body is read and discarded, so that the client can read the response.
LINGER = 2.0


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with timeouts and a limit on connections.

    There is a timeout for the headers, for the rest of a refused body, and for a client that does not read its response.
    """

    receive_timeout = 10.0
    grace = 1.0
    max_connections = 1024

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the timeout of the first headers, or refuse the connection if too many are open."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(self.receive_timeout, self._give_up)
        self._lingering = False
        self._reading: asyncio.TimerHandle | None = None
        self._turned_away = len(self.connections) > self.max_connections
        if self._turned_away:
            self._answer(Refusal(429, f"{self.max_connections:,} connections are open already. Try again later.", close=True))
            transport.write_eof()
            self._start_timer(LINGER)

    def data_received(self, data: bytes) -> None:
        """Process received bytes, and start or stop the timeout."""
        if self._turned_away:
            return
        super().data_received(data)
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy:
            self._stop_timer()
        elif self.cycle is not None and self.conn.their_state is h11.SEND_BODY:
            if not self._lingering:
                self._lingering = True
                self._start_timer(LINGER)
        elif self._timer is None and not self.transport.is_closing():
            # The headers of the next request have begun.
            self._start_timer(self.receive_timeout)

    def on_response_complete(self) -> None:
        """Check from now on that the client reads the response."""
        super().on_response_complete()
        if self._reading is None:
            self._watch_reading()

    def shutdown(self) -> None:
        """Close the connection after its response, or after ``grace`` seconds if it is idle.

        An idle connection is not closed at once, because a request may be on its way.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        elif not self.conn.trailing_data[0]:
            self._start_timer(self.grace)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_timer()
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with a JSON error."""
        self._answer(Refusal(400, f"invalid HTTP request: {msg}", close=True))
        self.transport.close()

    def _answer(self, refusal: Refusal) -> None:
        reason = http.HTTPStatus(refusal.status).phrase
        start = h11.Response(status_code=refusal.status, headers=refusal.headers, reason=reason.encode())
        with contextlib.suppress(h11.LocalProtocolError):
            for event in (start, h11.Data(data=refusal.body()), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")

    def _watch_reading(self, before: int = 0) -> None:
        """Disconnect a client that has read nothing of its response since the last check."""
        self._reading, waits = None, self._unread()
        if waits and waits == before:
            self.transport.abort()
        elif waits:
            self._reading = self.loop.call_later(self.receive_timeout, self._watch_reading, waits)

    def _unread(self) -> int:
        """Bytes that the client has not read: those in the transport's buffer and, on Linux, those in the kernel's send buffer.

        The transport's buffer shrinks only in large steps: by it alone a slow client would seem to read nothing.
        """
        own = bytearray(4)
        waits: int = self.transport.get_write_buffer_size()
        if waits and sys.platform.startswith("linux"):
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, own)
        return waits + int.from_bytes(own, sys.byteorder)

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()
