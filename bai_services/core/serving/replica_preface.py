"""First bytes of a gRPC connection to a replica: a PROXY protocol header with the secret.

HAProxy writes this header (version 2, with the secret as the unique id) and then forwards the
HTTP/2 bytes, so that a replica checks a connection without parsing HTTP/2.
"""

from __future__ import annotations

_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
# First four bytes of the signature. The replica reads up to these bytes, because they also end an
# HTTP/1.1 head.
START = _SIGNATURE[:4]
# Length of: rest of the signature, version and command, address family, length of the remainder.
REST_BYTES = 12
MAX_BYTES = 1024
_VERSION_2_LOCAL = 0x20
_UNIQUE_ID = 0x05
# Total length of addresses and ports, by address family: unknown, IPv4, IPv6, Unix.
_ADDRESS_BYTES = {0: 0, 1: 12, 2: 36, 3: 216}


def preface(secret: str) -> bytes:
    """Return the header of a connection without addresses."""
    value = secret.encode()
    entry = bytes([_UNIQUE_ID]) + len(value).to_bytes(2, "big") + value
    return _SIGNATURE + bytes([_VERSION_2_LOCAL, 0]) + len(entry).to_bytes(2, "big") + entry


def length_after(rest: bytes) -> int:
    """Return the number of bytes after the first 16; ``rest`` are the 12 bytes after `START`.

    Raises
    ------
    ValueError
        If ``rest`` does not belong to a header of version 2, or the header is too long.
    """
    length = int.from_bytes(rest[10:12], "big")
    if len(rest) != REST_BYTES or rest[:8] != _SIGNATURE[4:] or rest[8] >> 4 != 2:
        raise ValueError("not a header of the PROXY protocol, version 2")
    if length > MAX_BYTES:
        raise ValueError(f"the header has more than {MAX_BYTES} bytes")
    return length


def secret_of(rest: bytes, more: bytes) -> bytes:
    """Return the secret in a header, or b""; ``more``: the bytes after the first 16."""
    position = _ADDRESS_BYTES.get(rest[9] >> 4, len(more))
    while position + 3 <= len(more):
        kind, length = more[position], int.from_bytes(more[position + 1 : position + 3], "big")
        value = more[position + 3 : position + 3 + length]
        if kind == _UNIQUE_ID and len(value) == length:
            return value
        position += 3 + length
    return b""
