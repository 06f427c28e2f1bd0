"""The socket that a server listens on: opened, and closed without losing clients that are already connected."""

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
# Seconds to wait for handshakes that began before new connections were refused.
HANDSHAKE_WAIT = 0.1
# File descriptors that are kept free for models, libraries, and connections that are being refused.
OTHER_FILES = 128


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket that several processes can share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol of the socket is given as TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise ValueError(f"serve: cannot listen on {host}:{port}: {error.strerror}. Choose another --port.") from error
    listening.set_inheritable(True)
    return listening


def connection_limit(connections: int) -> int:
    """The number of connections that the process can keep open: ``connections``, or fewer if the system allows fewer.

    The limit on open files is raised as far as needed, and ``OTHER_FILES`` of them are not used for connections.
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


def refuse_connections(listening: socket.socket) -> bool:
    """Refuse new connections, and keep those that wait to be accepted. Call this before closing the socket.

    Closing a socket resets every connection that the kernel has established and the server has not accepted. Without new
    connections, all of these can be accepted first. New clients get no reply to their SYN packets; they try again, and are
    refused once the socket is closed.

    Returns:
        Whether the system supports it (Linux). If not, a client that connects between the last accept and the close is reset.
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
