"""What listens on this machine, as the kernel tells it: asked about listening sockets alone.

``/proc/net/tcp`` has every connection besides, and takes milliseconds where there are many.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

# sock_diag(7): a header of netlink, what is asked for, and an address that is not looked at.
_ASKED = struct.Struct("=IHHII BBxxI 48x")
_HEADER = struct.Struct("=IHHII")
_SOCK_DIAG = 4
_BY_FAMILY = 20
_DUMP = 0x301
_ERROR, _DONE = 2, 3
_LISTENING = 10
# In an answer: the port, the address, who has opened it.
_PORT, _ADDRESS, _UID, _ANSWER_BYTES = 4, 8, 64, 72
_READ_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket of this person's that waits for connections."""

    port: int
    address: IPv4Address | IPv6Address

    @property
    def is_reachable(self) -> bool:
        """Whether somebody on this machine reaches it as ``localhost``."""
        return self.address.is_loopback or self.address.is_unspecified


def listeners(uid: int | None = None) -> list[Listener]:
    """Return what this person listens on, over IPv4 and IPv6."""
    wanted = os.getuid() if uid is None else uid
    try:
        return [
            listener
            for family in (socket.AF_INET, socket.AF_INET6)
            for owner, listener in _told(family)
            if owner == wanted
        ]
    except (OSError, AttributeError):
        # Not every sandbox lets programs ask.
        return read_listeners(wanted)


def read_listeners(uid: int, proc: Path = Path("/proc/net")) -> list[Listener]:
    """Return the same from the kernel's text, which is there everywhere."""
    found: list[Listener] = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if int(words[3], 16) == _LISTENING and words[7] == str(uid):
                address, _, port = words[1].partition(":")
                found.append(Listener(int(port, 16), _address(address)))
    return found


def _told(family: socket.AddressFamily) -> Iterator[tuple[int, Listener]]:
    width = 4 if family is socket.AF_INET else 16
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        asked = (_ASKED.size, _BY_FAMILY, _DUMP, 0, 0, family, socket.IPPROTO_TCP, 1 << _LISTENING)
        kernel.send(_ASKED.pack(*asked))
        while True:
            said, at = kernel.recv(_READ_BYTES), 0
            while at < len(said):
                size, kind, *_ = _HEADER.unpack_from(said, at)
                one = said[at + _HEADER.size : at + size]
                if kind == _DONE:
                    return
                if kind == _ERROR or len(one) < _ANSWER_BYTES:
                    raise OSError("the kernel does not tell")
                (uid,) = struct.unpack_from("=I", one, _UID)
                port = int.from_bytes(one[_PORT : _PORT + 2])
                yield uid, Listener(port, ip_address(one[_ADDRESS : _ADDRESS + width]))
                at += (size + 3) & ~3  # each begins at a whole word


def _address(text: str) -> IPv4Address | IPv6Address:
    # Words of four bytes, each in this machine's order.
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return ip_address(b"".join(struct.pack("=I", word) for word in words))
