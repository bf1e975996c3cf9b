"""Signatures of API requests with a keypair; used by client and server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from datetime import datetime, timedelta

from ..errors import NotSignedIn

SCHEME = "BackendAI"
VERSION_HEADER = "X-BackendAI-Version"
DIGEST_HEADER = "Content-Digest"
VERSION = "v1"
CLOCK_WINDOW = timedelta(minutes=15)

_CREDENTIAL = re.compile(
    r"BackendAI signMethod=HMAC-SHA256, "
    r"credential=(?P<access>[A-Za-z0-9]{1,64}):(?P<sign>[0-9a-f]{64})"
)


def sign(
    secret_key: str,
    *,
    method: str,
    path: str,
    host: str,
    date: datetime,
    content_type: str,
    content_digest: str = "",
) -> str:
    """Return the hex signature of a request.

    ``path`` includes the query string. ``date`` is the time in the ``Date`` header, with a time
    zone. ``content_digest`` is the value of the ``Content-Digest`` header. If it is empty, the body
    is not signed. Clients of the original signature scheme do not send this header.
    """
    day = date.strftime("%Y%m%d")
    digest = (f"content-digest:{content_digest}",) if content_digest else ()
    text = "\n".join(
        (
            method.upper(),
            path,
            date.isoformat(),
            f"host:{host}",
            f"content-type:{content_type}",
            *digest,
            f"x-backendai-version:{VERSION}",
            hashlib.sha256(b"").hexdigest(),
        )
    )
    key = _hmac(_hmac(secret_key.encode(), day), host)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def content_digest(body: bytes) -> str:
    """Return the value of ``Content-Digest`` (RFC 9530) for a body."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def check_body(header: str, body: bytes) -> None:
    """Raise ``NotSignedIn`` unless a body matches its ``Content-Digest`` header."""
    if not hmac.compare_digest(header.encode(), content_digest(body).encode()):
        raise NotSignedIn(
            "the body does not match its Content-Digest header; send sha-256=:BASE64:, where "
            "BASE64 is the encoded SHA-256 digest of the body"
        )


def authorization(access_key: str, signature: str) -> str:
    """Return the value of the ``Authorization`` header."""
    return f"{SCHEME} signMethod=HMAC-SHA256, credential={access_key}:{signature}"


def parse_authorization(header: str) -> tuple[str, str]:
    """Parse an ``Authorization`` header and return its access key and signature.

    Raises
    ------
    NotSignedIn
        If the header is not a keypair signature.
    """
    match = _CREDENTIAL.fullmatch(header)
    if match is None:
        raise NotSignedIn(
            "the Authorization header is not a keypair signature; send "
            f"{authorization('ACCESS_KEY', 'SIGNATURE')}"
        )
    return match["access"], match["sign"]


def check_date(date: datetime, now: datetime) -> None:
    """Raise ``NotSignedIn`` if a signed date differs from ``now`` by more than CLOCK_WINDOW."""
    if abs(now - date) > CLOCK_WINDOW:
        raise NotSignedIn(
            f"the date of the request is {date.isoformat()}, more than "
            f"{CLOCK_WINDOW.seconds // 60} minutes from the server's time; set the clock",
            now=now.isoformat(),
        )


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
