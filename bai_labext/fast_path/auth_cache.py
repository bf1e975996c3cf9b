"""Cache an authorization for 1.5 s for requests with identical headers.

The key is the header block of a request that Jupyter authorized, byte for byte: same cookies, same
tokens, same client address. An entry is valid for one app.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bai_labext.app_proxy.handler import NoteUse
from bai_labext.app_proxy.upstream import AppAddress

# An ended sign-in stays valid this long, in addition to `sign_in_watch.CACHE_SECONDS`.
CACHE_TTL_SECONDS = 1.5
MAX_HEADER_BLOCKS = 256
MAX_HEADER_BLOCK_BYTES = 16 * 1024

# The rest of a request line: a path without any character that may be interpreted on the way, a
# query, and the version.
_PLAIN = re.compile(
    rb"[A-Za-z0-9_.~!$&'()*+,;=:@/-]*(?:\?[A-Za-z0-9_.~!$&'()*+,;=:@/?%-]*)? HTTP/1\.1"
)
_AMBIGUOUS = (b"..", b"//", b"token=")


@dataclass(frozen=True, slots=True)
class CachedAuthorization:
    """How the request line and headers of a client become those for the app."""

    start: bytes
    target: bytes
    headers: bytes = field(repr=False)
    address: AppAddress
    note_use: NoteUse
    expires_at: float


@dataclass(frozen=True, slots=True)
class AuthorizedRequest:
    """A request that needs no check by Jupyter: the message for the app, and its address."""

    message: bytes = field(repr=False)
    address: AppAddress
    note_use: Callable[[], None]


class AuthCache:
    """The cached authorizations of one Jupyter server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[bytes, dict[bytes, CachedAuthorization]] = {}
        self._last_expiry = 0.0

    def add(
        self, head: bytes, sent: bytes, prefix: bytes, address: AppAddress, note_use: NoteUse
    ) -> None:
        """Cache the authorization of a request whose head is ``head``.

        ``sent`` is the head that the app received for it, ``prefix`` the path of the app with a
        slash at its end. Nothing is cached unless the two request lines differ by no more than
        the prefix.
        """
        line, _, headers = head.partition(b"\r\n")
        sent_line, _, sent_headers = sent.partition(b"\r\n")
        start = b"GET " + prefix
        if not line.startswith(start) or len(headers) > MAX_HEADER_BLOCK_BYTES:
            return
        rest = line[len(start) :]
        # Some apps receive the whole path, with the prefix.
        target = next((t for t in (b"GET /", start) if sent_line == t + rest), None)
        if target is None:
            return
        now = self._clock()
        if len(self._entries) >= MAX_HEADER_BLOCKS:
            self._evict(now)
        self._last_expiry = now + CACHE_TTL_SECONDS
        entry = CachedAuthorization(
            start, target, sent_headers, address, note_use, self._last_expiry
        )
        self._entries.setdefault(headers, {})[start] = entry

    def find(self, received: bytes) -> AuthorizedRequest | None:
        """Return the request in ``received`` if it is a single whole one that is authorized."""
        line, _, headers = received.partition(b"\r\n")
        for entry in self._entries.get(headers, {}).values():
            if line.startswith(entry.start):
                return self._authorized(entry, line[len(entry.start) :])
        return None

    @property
    def may_have_valid_entries(self) -> bool:
        return self._clock() < self._last_expiry

    def _authorized(self, entry: CachedAuthorization, rest: bytes) -> AuthorizedRequest | None:
        if self._clock() >= entry.expires_at:
            return None
        if not _PLAIN.fullmatch(rest) or any(word in rest for word in _AMBIGUOUS):
            return None
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("ascii")
        message = b"".join((entry.target, rest, b"\r\n", entry.headers))
        return AuthorizedRequest(message, entry.address, lambda: entry.note_use(f"/{path}"))

    def _evict(self, now: float) -> None:
        """Remove expired entries; all of them if that does not make room."""
        kept = {
            headers: valid
            for headers, entries in self._entries.items()
            if (valid := {s: entry for s, entry in entries.items() if now < entry.expires_at})
        }
        self._entries = kept if len(kept) < MAX_HEADER_BLOCKS else {}
