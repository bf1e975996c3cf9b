"""Validation of users' SSH public keys, which the SSH servers of their sessions accept."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from dataclasses import dataclass

from ..errors import InvalidRequest
from ..user_input import shown

MAX_KEYS = 20
MAX_KEY_CHARACTERS = 8192
MIN_RSA_BITS = 2048
TYPES = frozenset(
    {
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    }
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9@._-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An SSH public key.

    ``text`` is the type and the key without the comment. ``fingerprint`` has the format of
    ``ssh-keygen -l``.
    """

    text: str
    fingerprint: str


def check_key_name(name: str) -> str:
    """Return ``name`` if it is a valid name of an SSH key.

    Raises
    ------
    InvalidRequest
        If the name is not valid.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{shown(name)!r} cannot be the name of an SSH key: use 1 to 64 letters, digits and "
            "@ . _ -, with a letter or digit at both ends",
            field="name",
        )
    return name


def parse_public_key(text: str) -> PublicKey:
    """Parse a line in the format of ``id_ed25519.pub``.

    Raises
    ------
    InvalidRequest
        If the line is not a public key of a supported type, begins with options, or contains a
        weak or a private key.
    """
    if "PRIVATE KEY" in text:
        raise _invalid(
            "this is a private key, which must stay secret; use the file that ends with .pub"
        )
    words = text.split(None, 2)
    if len(text) > MAX_KEY_CHARACTERS or "\n" in text.strip() or len(words) < 2:
        raise _invalid(
            f"write one line of at most {MAX_KEY_CHARACTERS} characters with type and key, such as "
            "ssh-ed25519 AAAA… me@home"
        )
    kind, encoded = words[:2]
    if kind not in TYPES:
        raise _invalid(
            f"the key type {shown(kind)!r} is not supported; use {', '.join(sorted(TYPES))}"
        )
    try:
        blob = base64.b64decode(encoded, validate=True)
        fields = _fields(blob)
    except (binascii.Error, struct.error, ValueError):
        raise _invalid("the key is damaged: copy the whole line") from None
    if len(fields) < 2 or fields[0] != kind.encode():
        raise _invalid("the key is damaged: copy the whole line")
    if kind == "ssh-rsa":
        bits = int.from_bytes(fields[-1]).bit_length()
        if bits < MIN_RSA_BITS:
            raise _invalid(f"the RSA key has {bits} bits; at least {MIN_RSA_BITS} are required")
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return PublicKey(f"{kind} {base64.b64encode(blob).decode()}", f"SHA256:{digest}")


def _fields(blob: bytes) -> list[bytes]:
    """Return the length-prefixed fields of an encoded key."""
    fields = []
    while blob:
        (size,) = struct.unpack_from("!I", blob)
        if size > len(blob) - 4:
            raise ValueError("truncated")
        fields.append(blob[4 : 4 + size])
        blob = blob[4 + size :]
    return fields


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest(f"public_key: {reason}", field="public_key")
