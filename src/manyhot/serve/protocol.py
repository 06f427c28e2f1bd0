"""One connection: what HTTP it speaks, and how long it may take."""

from __future__ import annotations

import asyncio
import contextlib

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from manyhot.serve.refusals import Refusal

# Seconds for which the rest of a refused body is read and discarded, so that the client can read the response.
LINGER = 2.0


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP protocol with timeouts: headers must arrive in time, and so must the rest of a refused body."""

    receive_timeout = 10.0
    grace = 1.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client connects: it has some seconds to send its first headers."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(self.receive_timeout, self._give_up)
        self._lingering = False

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        super().data_received(data)
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy:
            self._stop_timer()
        elif self.cycle is not None and self.conn.their_state is h11.SEND_BODY:
            if not self._lingering:
                self._lingering = True
                self._start_timer(LINGER)
        elif self._timer is None and not self.transport.is_closing():
            # The headers of another request have begun.
            self._start_timer(self.receive_timeout)

    def shutdown(self) -> None:
        """The server stops: a connection is closed after its answer, and after a while where none is due.

        A request may be on its way.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        elif not self.conn.trailing_data[0]:
            self._start_timer(self.grace)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left."""
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Invalid HTTP gets a JSON error too."""
        refusal = Refusal(400, f"this is not an HTTP request the server can read: {msg}")
        body = refusal.body()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        with contextlib.suppress(h11.LocalProtocolError):
            for event in (h11.Response(status_code=400, headers=headers, reason=b"Bad Request"), h11.Data(data=body)):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
        self.transport.close()

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
