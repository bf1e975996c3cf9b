"""Rewrite a browser's requests to a Jupyter server: add the token and, if needed, a path prefix.

A browser that opens a local port has no token. Any page in that browser can send requests to
the port, so requests of cross-site pages are rejected. This module transforms bytes and does no
I/O.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from enum import Enum, auto
from http import HTTPStatus
from urllib.parse import SplitResult, urlsplit

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 1024
MAX_CONTENT_LENGTH_DIGITS = 18
# These parts of a request are checked strictly. If a form is not strict, a server could interpret
# it in another way and find a second request in the body of the first (RFC 9112, section 11.2).
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_REQUEST_LINE = re.compile(rf"({_TOKEN}) (/[^\x00-\x20\x7f]*) (HTTP/1\.[01])")
_FIELD = re.compile(rf"({_TOKEN}):([^\x00\r\n]*)")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00\r\n]*)?\r\n")
# A request that repeats one of these headers is rejected, because the server may use another of the
# values.
_NOT_REPEATABLE = frozenset(
    {"host", "content-length", "transfer-encoding", "origin", "sec-fetch-site", "sec-fetch-mode"}
)
# Headers that are replaced or removed, because a browser's credentials belong to another server.
_DROPPED = frozenset({"authorization", "proxy-authorization"})
_END = b"\r\n\r\n"


class RequestRejected(Exception):
    """A rejected request; ``response`` is the HTTP response for the browser."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        body = f"{message}\n".encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            f"Content-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.response = head.encode() + body


class _State(Enum):
    HEAD = auto()
    BODY = auto()
    CHUNK_LINE = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    RAW = auto()  # after an upgrade to a websocket


class RequestRewriter:
    """Incremental rewriter of the requests of one connection.

    A path that does not start with ``base`` is relative to ``base + prefix``: an app is
    available both at ``/`` and at its own path.
    """

    def __init__(self, token: str, base: str, prefix: str) -> None:
        self._token = token
        self._base = base
        self._root = base + prefix
        self._state = _State.HEAD
        self._buffer = bytearray()
        # Remaining bytes of a body or chunk, and the state after it.
        self._remaining_bytes = 0
        self._next_state = _State.HEAD

    def feed(self, content: bytes | memoryview) -> Iterator[bytes | memoryview]:
        """Yield the bytes to forward for the received bytes.

        Raises
        ------
        RequestRejected
            If a request must not be forwarded.
        """
        view = memoryview(content)
        while view:
            if self._state is _State.RAW:
                yield view
                return
            if self._state is _State.BODY:
                body, view = view[: self._remaining_bytes], view[self._remaining_bytes :]
                self._remaining_bytes -= len(body)
                if not self._remaining_bytes:
                    self._state = self._next_state
                yield body
                continue
            rewritten, view = self._read_head_or_line(view)
            if rewritten is not None:
                yield rewritten

    def _read_head_or_line(self, view: memoryview) -> tuple[bytes | None, memoryview]:
        """Read up to the end of a head or line.

        Return the rewritten text (None if it is incomplete) and the rest of ``view``.
        """
        end, max_bytes = (
            (_END, MAX_HEAD_BYTES)
            if self._state is _State.HEAD
            else (b"\r\n", MAX_CHUNK_LINE_BYTES)
        )
        before = len(self._buffer)
        self._buffer += view[: max_bytes + 1]
        position = self._buffer.find(end, max(0, before - len(end) + 1))
        if position < 0:
            if len(self._buffer) > max_bytes:
                raise _too_long(self._state)
            return None, view[len(view) :]
        size = position + len(end)
        text = bytes(self._buffer[:size])
        self._buffer.clear()
        return self._rewrite(text), view[size - before :]

    def _rewrite(self, text: bytes) -> bytes:
        """Return the bytes to forward for a complete head, trailer line or chunk size line."""
        if self._state is _State.HEAD:
            return self._rewrite_head(text)
        if self._state is _State.TRAILERS:
            if text == b"\r\n":
                self._state = _State.HEAD
            elif not _FIELD.fullmatch(text[:-2].decode("latin-1")):
                raise RequestRejected(HTTPStatus.BAD_REQUEST, "invalid trailer")
            return text
        if self._state is _State.CHUNK_END:
            if text != b"\r\n":
                raise RequestRejected(HTTPStatus.BAD_REQUEST, "invalid end of a chunk")
            self._state = _State.CHUNK_LINE
            return text
        match = _CHUNK_LINE.fullmatch(text)
        if match is None:
            raise RequestRejected(HTTPStatus.BAD_REQUEST, "invalid chunk size")
        if size := int(match[1], 16):
            self._remaining_bytes = size
            self._state, self._next_state = _State.BODY, _State.CHUNK_END
        else:
            self._state = _State.TRAILERS
        return text

    def _rewrite_head(self, head: bytes) -> bytes:
        first, *rest = head[: -len(_END)].decode("latin-1").split("\r\n")
        words = _REQUEST_LINE.fullmatch(first)
        lines = [match.groups() for line in rest if (match := _FIELD.fullmatch(line))]
        if words is None or len(lines) < len(rest):
            raise RequestRejected(HTTPStatus.BAD_REQUEST, "invalid request line or header")
        fields: dict[str, str] = {}
        for name, value in lines:
            key = name.lower()
            if key in fields and key in _NOT_REPEATABLE:
                raise RequestRejected(
                    HTTPStatus.BAD_REQUEST, f"the request has more than one header {key!r}"
                )
            fields[key] = value.strip(" \t")
        _check_same_site(fields)
        method, target, version = words.groups()
        self._expect_body(fields, version)
        kept = [f"{name}:{value}" for name, value in lines if name.lower() not in _DROPPED]
        request_line = f"{method} {self._path(target)} {version}"
        rewritten = "\r\n".join((request_line, f"Authorization: token {self._token}", *kept))
        return rewritten.encode("latin-1") + _END

    def _path(self, target: str) -> str:
        if target.startswith(self._base):
            return target
        return self._root.rstrip("/") + target

    def _expect_body(self, fields: dict[str, str], version: str) -> None:
        length, coding = fields.get("content-length"), fields.get("transfer-encoding")
        if "upgrade" in fields:
            self._state = _State.RAW
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None or version == "HTTP/1.0":
                raise RequestRejected(HTTPStatus.BAD_REQUEST, "ambiguous length of the body")
            self._state = _State.CHUNK_LINE
        elif length is not None:
            if not (
                length.isascii() and length.isdecimal() and len(length) <= MAX_CONTENT_LENGTH_DIGITS
            ):
                raise RequestRejected(HTTPStatus.BAD_REQUEST, "ambiguous length of the body")
            if int(length):
                self._remaining_bytes, self._state, self._next_state = (
                    int(length),
                    _State.BODY,
                    _State.HEAD,
                )


def _too_long(state: _State) -> RequestRejected:
    if state is _State.HEAD:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        return RequestRejected(status, "the request head is too long")
    if state is _State.TRAILERS:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        return RequestRejected(status, "a trailer of the request is too long")
    if state is _State.CHUNK_END:
        return RequestRejected(HTTPStatus.BAD_REQUEST, "invalid end of a chunk")
    return RequestRejected(HTTPStatus.BAD_REQUEST, "the line with a chunk size is too long")


def _check_same_site(fields: dict[str, str]) -> None:
    """Reject requests of cross-site pages in the user's browser.

    Only IP addresses, localhost and its subdomains are accepted as host: any other name could
    resolve to this address (DNS rebinding).

    Raises
    ------
    RequestRejected
        If a page of another site sends the request (following a link is allowed), or the host name
        is not accepted.
    """
    host = fields.get("host", "")
    name = _parse(f"//{host}").hostname or ""
    if not _is_ip_address(name) and name != "localhost" and not name.endswith(".localhost"):
        raise RequestRejected(
            HTTPStatus.FORBIDDEN, f"host name {name!r} is not allowed; use 127.0.0.1"
        )
    origin = fields.get("origin")
    is_cross_site = origin is not None and _parse(origin).netloc.lower() != host.lower()
    site, mode = fields.get("sec-fetch-site", "none"), fields.get("sec-fetch-mode", "")
    if site not in ("none", "same-origin") and mode != "navigate":
        is_cross_site = True
    if is_cross_site:
        raise RequestRejected(
            HTTPStatus.FORBIDDEN, "pages of other sites may not send requests to this port"
        )


def _parse(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise RequestRejected(HTTPStatus.BAD_REQUEST, "invalid host or origin") from None


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
