"""Find free ports for servers, if possible below the kernel's ephemeral range."""

from __future__ import annotations

import secrets
import socket
from contextlib import closing
from pathlib import Path

HIGHEST = 65535
# Above the ports of well-known servers, below Linux's default ephemeral range.
_LOWEST, _COUNT = 20_000, 12_000
_MAX_ATTEMPTS = 100
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Return whether a server can currently listen on the port, on all IPv4 addresses."""
    if not 0 < port <= HIGHEST:
        return False
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_port(lowest: int = _LOWEST, count: int = _COUNT) -> int:
    """Return a free port from ``lowest`` to ``lowest + count - 1``.

    The Linux kernel would choose a port of its ephemeral range (ip(7)). The kernel also uses that
    range for outgoing connections, so the port could be taken before the server listens on it.
    Therefore this function chooses a port below that range. The function returns the kernel's
    choice if the requested ports are not all below that range, or after 100 attempts.
    """
    if lowest + count <= _first_ephemeral_port():
        for _ in range(_MAX_ATTEMPTS):
            port = lowest + secrets.randbelow(count)
            if is_free(port):
                return port
    return _proposed_port()


def _first_ephemeral_port() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _proposed_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
