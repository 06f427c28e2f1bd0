"""The socket that a server listens on: opened, and closed without losing a client that has connected already."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys
from collections.abc import Iterator

# Linux: attach a packet filter to a socket. The socket module has no name for it.
SO_ATTACH_FILTER = 26
# A classic BPF program on the TCP header, as (code, jump if true, jump if false, value): packets whose flags (byte 13) have
# SYN (2) are dropped, all others pass.
DROP_SYN = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
# Seconds in which handshakes that had begun before new ones were turned away come to their end.
SETTLE = 0.1
# Files that a worker may open beside its connections: models, libraries, connections that are being turned away.
OTHER_FILES = 128


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, for this process or several."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small packets at once (TCP_NODELAY) only where it knows that a socket is TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise ValueError(f"serve: {host}:{port} cannot be listened on: {error.strerror}. Choose another --port.") from error
    listening.set_inheritable(True)
    return listening


def room_for(connections: int) -> int:
    """How many connections the process may have open: as many as asked for, or what the system allows it.

    The number of open files is raised as far as needed, and some are left for other things than connections.
    """
    try:
        import resource
    except ImportError:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted, most = connections + OTHER_FILES, hard if hard != resource.RLIM_INFINITY else sys.maxsize
    if soft not in (resource.RLIM_INFINITY, most) and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, most), hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - OTHER_FILES))


def turn_away(listening: socket.socket) -> bool:
    """Let no new connection begin; those that wait to be accepted stay. Call before the socket is closed.

    Closing resets every connection that the kernel has taken and nobody has accepted, whatever its client has sent. With no
    new ones, all of them can be accepted first. A client that is turned away tries again and is refused once the socket is
    closed.

    Returns:
        Whether the system can do it (Linux). Where it cannot, a client that connects between the last accept and the close
        is reset.
    """
    if not sys.platform.startswith("linux"):
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in DROP_SYN))
    # The native struct sock_fprog: a count and a pointer.
    argument = struct.pack("@HP", len(DROP_SYN), ctypes.addressof(program))
    try:
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, argument)
    except OSError:
        return False
    return True


def accept_waiting(listening: socket.socket) -> Iterator[socket.socket]:
    """The connections that wait to be accepted; ``listening`` does not block."""
    with contextlib.suppress(OSError):
        while True:
            client, _ = listening.accept()
            client.setblocking(False)
            yield client
