"""Free ports for servers, outside the kernel's range for client connections."""

from __future__ import annotations

import secrets
import socket
from contextlib import closing
from pathlib import Path

HIGHEST = 65535
# Above the ports of well-known servers, below Linux's default ephemeral range.
_LOWEST, _COUNT = 20_000, 12_000
_TRIES = 100
_LENT_TO_CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port now, whatever the address."""
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
    """Return one of ``count`` ports from ``lowest`` up that is not in use.

    A port proposed by the kernel is in the ephemeral range, from which it also takes a port for
    every outgoing connection: it may be taken between the proposal and `listen`. So the choice is
    below that range (Linux, ip(7)). If the machine's ephemeral range includes these ports too, or
    none of many is free, the kernel's proposal is used after all.
    """
    if lowest + count <= _first_lent_port():
        for _ in range(_TRIES):
            port = lowest + secrets.randbelow(count)
            if is_free(port):
                return port
    return _proposed_port()


def _first_lent_port() -> int:
    try:
        return int(_LENT_TO_CLIENTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _proposed_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
