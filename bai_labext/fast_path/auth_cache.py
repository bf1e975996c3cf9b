"""Cache authorizations for 1.5 s, for requests to the same app with identical headers.

The key is the unchanged header block of a request that Jupyter has authorized. A request with the
same header block has the same cookies, tokens and client address.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bai_labext.app_proxy.handler import RecordUse
from bai_labext.app_proxy.upstream import AppAddress

# After a sign-out, requests remain authorized for at most this time plus
# `sign_in_watch.CACHE_TTL_SECONDS`.
CACHE_TTL_SECONDS = 1.5
MAX_HEADER_BLOCKS = 256
MAX_HEADER_BLOCK_BYTES = 16 * 1024

# Rest of a request line after the prefix: path, query and version. The path may contain only
# characters that no program between client and app would decode.
_PLAIN = re.compile(
    rb"[A-Za-z0-9_.~!$&'()*+,;=:@/-]*(?:\?[A-Za-z0-9_.~!$&'()*+,;=:@/?%-]*)? HTTP/1\.1"
)
_AMBIGUOUS = (b"..", b"//", b"token=")


@dataclass(frozen=True, slots=True)
class CachedAuthorization:
    """How to rewrite a client's request line and headers for the app.

    ``start``, the beginning of the client's request line, is replaced by ``target``; the client's
    headers are replaced by ``headers``.
    """

    start: bytes
    target: bytes
    headers: bytes = field(repr=False)
    address: AppAddress
    record_use: RecordUse
    expires_at: float


@dataclass(frozen=True, slots=True)
class AuthorizedRequest:
    """A request that bypasses Jupyter: the message for the app, and the app's address."""

    message: bytes = field(repr=False)
    address: AppAddress
    record_use: Callable[[], None]


class AuthCache:
    """The cached authorizations of one Jupyter server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[bytes, dict[bytes, CachedAuthorization]] = {}
        self._last_expiry = 0.0

    def add(
        self, head: bytes, sent: bytes, prefix: bytes, address: AppAddress, record_use: RecordUse
    ) -> None:
        """Cache the authorization of a request whose head is ``head``.

        ``sent`` is the head that was sent to the app, ``prefix`` the path of the app with a slash
        at its end. Nothing is cached if the two request lines differ in more than the prefix, or if
        the headers are longer than 16 KiB.
        """
        line, _, headers = head.partition(b"\r\n")
        sent_line, _, sent_headers = sent.partition(b"\r\n")
        start = b"GET " + prefix
        if not line.startswith(start) or len(headers) > MAX_HEADER_BLOCK_BYTES:
            return
        rest = line[len(start) :]
        # Some apps receive the full path, with the prefix (``App.needs_path_prefix``).
        target = next((t for t in (b"GET /", start) if sent_line == t + rest), None)
        if target is None:
            return
        now = self._clock()
        if len(self._entries) >= MAX_HEADER_BLOCKS:
            self._evict(now)
        self._last_expiry = now + CACHE_TTL_SECONDS
        entry = CachedAuthorization(
            start, target, sent_headers, address, record_use, self._last_expiry
        )
        self._entries.setdefault(headers, {})[start] = entry

    def find(self, received: bytes) -> AuthorizedRequest | None:
        """Return the request if ``received`` is exactly one complete, authorized request.

        Return None otherwise.
        """
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
        return AuthorizedRequest(message, entry.address, lambda: entry.record_use(f"/{path}"))

    def _evict(self, now: float) -> None:
        """Remove expired entries, or all entries if the cache is still full."""
        remaining = {
            headers: valid
            for headers, entries in self._entries.items()
            if (valid := {s: entry for s, entry in entries.items() if now < entry.expires_at})
        }
        self._entries = remaining if len(remaining) < MAX_HEADER_BLOCKS else {}
