"""Rewrites a browser's requests to a Jupyter server: adds the token, and a path prefix if needed.

A browser that opens a local port has no token, and any page that it has open may send requests
there, so requests of foreign pages are refused here. Bytes in, bytes out; no I/O.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from enum import Enum, auto
from http import HTTPStatus
from urllib.parse import urlsplit

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 1024
MAX_LENGTH_DIGITS = 18
# Replaced, never passed on: values from a page refer to another server.
_DROPPED = frozenset({"authorization", "proxy-authorization"})
_END = b"\r\n\r\n"


class Refused(Exception):
    """A request that is refused; ``answer`` is sent back."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        body = f"{message}\n".encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            f"Content-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.answer = head.encode() + body


class _State(Enum):
    HEAD = auto()
    BODY = auto()
    CHUNK_LINE = auto()
    TRAILERS = auto()
    RAW = auto()  # a websocket: no HTTP any more


class RequestHeads:
    """The requests of one connection.

    A path that does not begin with ``base`` is taken as relative to ``base`` and ``prefix``, so
    that an app is found at ``/`` as well as at its own address.
    """

    def __init__(self, token: str, base: str, prefix: str) -> None:
        self._token = token
        self._base = base
        self._root = base + prefix
        self._state = _State.HEAD
        self._buffer = bytearray()
        self._left = 0
        self._then = _State.HEAD

    def feed(self, content: bytes | memoryview) -> Iterator[bytes | memoryview]:
        """Yield what to forward of the received bytes.

        Raises
        ------
        Refused
            If a request must not be forwarded.
        """
        view = memoryview(content)
        while view:
            if self._state is _State.RAW:
                yield view
                return
            if self._state is _State.BODY:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                if not self._left:
                    self._state = self._then
                yield piece
                continue
            done, view = self._gather(view)
            if done is not None:
                yield done

    def _gather(self, view: memoryview) -> tuple[bytes | None, memoryview]:
        """Take from ``view`` up to the end of a head or a line; return it rewritten."""
        end, most = (
            (b"\r\n", MAX_CHUNK_LINE_BYTES)
            if self._state is _State.CHUNK_LINE or self._state is _State.TRAILERS
            else (_END, MAX_HEAD_BYTES)
        )
        before = len(self._buffer)
        self._buffer += view[: most + 1]
        place = self._buffer.find(end, max(0, before - len(end) + 1))
        if place < 0:
            if len(self._buffer) > most:
                raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head is too long")
            return None, view[len(view) :]
        size = place + len(end)
        taken = bytes(self._buffer[:size])
        self._buffer.clear()
        return self._line(taken), view[size - before :]

    def _line(self, taken: bytes) -> bytes:
        if self._state is _State.HEAD:
            return self._head(taken)
        if self._state is _State.TRAILERS:
            if taken == b"\r\n":
                self._state = _State.HEAD
            return taken
        try:
            size = int(taken.partition(b";")[0], 16)
        except ValueError:
            size = -1
        if size < 0:
            raise Refused(HTTPStatus.BAD_REQUEST, "a chunk without a size")
        if size:
            # The chunk and its line end.
            self._left, self._state, self._then = size + 2, _State.BODY, _State.CHUNK_LINE
        else:
            self._state = _State.TRAILERS
        return taken

    def _head(self, taken: bytes) -> bytes:
        first, *rest = taken[: -len(_END)].decode("latin-1").split("\r\n")
        try:
            method, target, version = first.split(" ")
            lines = [line.partition(":") for line in rest]
            fields = {name.lower(): value.strip() for name, _, value in lines}
        except ValueError:
            raise Refused(HTTPStatus.BAD_REQUEST, "no request") from None
        if not target.startswith("/") or any(not name or name != name.strip() for name in fields):
            raise Refused(HTTPStatus.BAD_REQUEST, "no request for a path here")
        _refuse_foreign(fields)
        self._expect_body(fields)
        kept = [f"{n}:{v}" for n, _, v in lines if n.lower() not in _DROPPED]
        words = " ".join((method, self._path(target), version))
        head = "\r\n".join((words, f"Authorization: token {self._token}", *kept))
        return head.encode("latin-1") + _END

    def _path(self, target: str) -> str:
        if target.startswith(self._base):
            return target
        return self._root.rstrip("/") + target

    def _expect_body(self, fields: dict[str, str]) -> None:
        length, coding = fields.get("content-length"), fields.get("transfer-encoding")
        if "upgrade" in fields:
            self._state = _State.RAW
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise Refused(HTTPStatus.BAD_REQUEST, "a body of ambiguous length")
            self._state = _State.CHUNK_LINE
        elif length is not None:
            if not (length.isascii() and length.isdecimal() and len(length) <= MAX_LENGTH_DIGITS):
                raise Refused(HTTPStatus.BAD_REQUEST, "a body of ambiguous length")
            if int(length):
                self._left, self._state, self._then = int(length), _State.BODY, _State.HEAD


def _refuse_foreign(fields: dict[str, str]) -> None:
    """Refuse requests that another site's page sends through the browser that uses the port.

    Any host name may resolve to this address (DNS rebinding); numeric addresses and localhost
    cannot be abused that way.
    """
    host = fields.get("host", "")
    name = urlsplit(f"//{host}").hostname or ""
    if not _is_number(name) and name != "localhost" and not name.endswith(".localhost"):
        raise Refused(HTTPStatus.FORBIDDEN, f"{name!r} does not lead here; use 127.0.0.1")
    origin = fields.get("origin")
    is_foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
    site, mode = fields.get("sec-fetch-site", "none"), fields.get("sec-fetch-mode", "")
    if site not in ("none", "same-origin") and mode != "navigate":
        is_foreign = True
    if is_foreign:
        raise Refused(HTTPStatus.FORBIDDEN, "a page of another site may not send requests here")


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
