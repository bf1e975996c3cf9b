"""HTTP client for imports: the protocol of the Hugging Face hub, and files at URLs.

Its methods block, so call them in threads. They connect only to addresses that ``AllowedTargets``
allows; this also applies to redirects.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlsplit

from bai_services.core.coded_text import TextTemplate
from bai_services.core.models.imports import (
    MAX_INFO_BYTES,
    ModelInfo,
    RemoteFile,
    checksum_of_etag,
    parse_info,
)
from bai_services.core.sessions.callbacks import AllowedTargets

from ..imports.transfer import SlowSource, SourceError, Transfer
from ..outgoing import (
    RetryableError,
    allowed_addresses,
    connect,
    origin_of,
    problem_of,
    redirect_target,
    time_limit,
)
from ..sessions.callback_calls import Lookup, look_up

T = TypeVar("T")

# Total time limit for the head of a response, a description or a size. The timeout of the socket is
# not sufficient, because it restarts with each byte.
HEAD_SECONDS = 120.0
# Time limit of one file.
MAX_FILE_SECONDS = 24 * 3600.0
# Minimum mean rate over the window: a slower server must not occupy an import for hours.
MIN_BYTES_PER_SECOND = 32 * 1024
RATE_WINDOW_SECONDS = 300.0
# Time limit for the end of a response after the last byte of the file.
END_SECONDS = 10.0
MAX_REDIRECTS = 5
# Maximum number of consecutive attempts without a received byte.
MAX_ATTEMPTS = 5
FIRST_DELAY_SECONDS = 1.0
MAX_DELAY_SECONDS = 30.0
CHUNK_BYTES = 2**20
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The last response of a chain of redirects, with the ``etag`` and ``size`` of the file."""

    response: http.client.HTTPResponse
    connected: socket.socket
    start: int
    size: int | None
    etag: str


class HubClient:
    """Reads models of one hub, and files at URLs. The token is sent only to the hub itself."""

    def __init__(
        self,
        base_url: str,
        token: str,
        targets: AllowedTargets,
        lookup: Lookup = look_up,
        first_delay_seconds: float = FIRST_DELAY_SECONDS,
        head_seconds: float = HEAD_SECONDS,
        rate_window_seconds: float = RATE_WINDOW_SECONDS,
        end_seconds: float = END_SECONDS,
    ) -> None:
        self.targets = targets
        self._base = base_url.rstrip("/")
        self._token = token
        self._lookup = lookup
        self._first_delay = first_delay_seconds
        self._head_seconds = head_seconds
        self.rate_window_seconds = rate_window_seconds
        self.end_seconds = end_seconds

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        # Created for the first import: loading the certificate authorities takes 20 ms of CPU time.
        return ssl.create_default_context()

    def anonymous(self) -> HubClient:
        """Return a client without the token, for URLs that users give."""
        return HubClient(
            self._base,
            "",
            self.targets,
            self._lookup,
            self._first_delay,
            self._head_seconds,
            self.rate_window_seconds,
            self.end_seconds,
        )

    def info(self, repository: str, revision: str, transfer: Transfer) -> ModelInfo:
        """Return a revision of a model.

        Raises
        ------
        SourceError
            If the hub cannot be reached, refuses access, or does not follow the protocol.
        """
        path = f"/api/models/{quote(repository)}/revision/{quote(revision, safe='')}?blobs=true"

        def read() -> bytes:
            with self.opened(self._base + path, transfer) as answer:
                return answer.response.read(MAX_INFO_BYTES + 1)

        body = self._repeated(read, transfer)
        if len(body) > MAX_INFO_BYTES:
            raise SourceError("the description of the model is too long")
        try:
            return parse_info(json.loads(body))
        except json.JSONDecodeError:
            problem = "no valid JSON"
        except (ValueError, RecursionError) as error:
            problem = str(error)
        raise SourceError(f"the hub does not follow the protocol: {problem}")

    def file_url(self, repository: str, commit: str, path: str) -> str:
        return f"{self._base}/{quote(repository)}/resolve/{quote(commit, safe='')}/{quote(path)}"

    def size_of(self, url: str, transfer: Transfer) -> int:
        """Return the size of a file.

        Raises
        ------
        SourceError
            If the file cannot be read, or the server does not report its size.
        """

        def read() -> int | None:
            with self.opened(url, transfer) as answer:
                return answer.size

        size = self._repeated(read, transfer)
        if size is None:
            raise SourceError("the server does not report the size of the file")
        return size

    def download(
        self,
        url: str,
        file: RemoteFile,
        *,
        write: Callable[[bytes], None],
        restart: Callable[[], None],
        transfer: Transfer,
    ) -> str:
        """Pass the content of a file to ``write``; return its SHA-256.

        An interrupted download resumes where it stopped. If the server does not support this,
        ``restart`` removes what was written.

        Raises
        ------
        SourceError
            If the file cannot be read, or differs from its size or checksum.
        Conflict
            If the transfer was cancelled.
        """
        download = _Download(self, url, file, write, restart, transfer)
        return download.run(self._delays)

    def _delays(self) -> Iterator[float]:
        delay = self._first_delay
        for _ in range(MAX_ATTEMPTS):
            yield delay
            delay = min(2 * delay, MAX_DELAY_SECONDS)

    def _repeated(self, read: Callable[[], T], transfer: Transfer) -> T:
        """Return the result of ``read``; retry it after network failures."""
        failure = RetryableError("the server cannot be reached")
        for delay in self._delays():
            try:
                with _network_errors():
                    return read()
            except RetryableError as error:
                failure = error
            transfer.wait(delay)
        raise failure

    @contextlib.contextmanager
    def opened(
        self, url: str, transfer: Transfer, start: int = 0, body_seconds: float | None = None
    ) -> Iterator[_Answer]:
        """Request a URL from the byte ``start``, follow redirects, and yield the response.

        The time limit for reading the body is ``body_seconds`` (default: ``head_seconds``).

        Raises
        ------
        SourceError
            If an address is not allowed, or the server responds with an error.
        Conflict
            If the transfer was cancelled.
        """
        linked: dict[str, str] = {}
        for _ in range(MAX_REDIRECTS + 1):
            connection = self._connection(url)
            connected = connection.sock
            try:
                with transfer.using(connected):
                    with time_limit(connected, self._head_seconds):
                        response = self._request(connection, url, start)
                    for name in ("X-Linked-ETag", "X-Linked-Size"):
                        if value := response.headers.get(name):
                            linked.setdefault(name, value)
                    if response.status not in _REDIRECTS:
                        answer = _answer(response, connected, start, linked)
                        with time_limit(connected, body_seconds or self._head_seconds):
                            yield answer
                        return
                url = redirect_target(url, response.headers.get("Location"))
            finally:
                connection.close()
        raise SourceError(f"the server redirects more than {MAX_REDIRECTS} times")

    def _request(
        self, connection: http.client.HTTPConnection, url: str, start: int
    ) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        headers = {"User-Agent": "bai-hub", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        if self._token and origin_of(url) == origin_of(self._base):
            headers["Authorization"] = f"Bearer {self._token}"
        path = parts.path or "/"
        connection.request("GET", f"{path}?{parts.query}" if parts.query else path, None, headers)
        return connection.getresponse()

    def allowed_addresses(self, url: str) -> list[str]:
        """Return the addresses of the URL's host to which an import may connect.

        Raises
        ------
        SourceError
            If the host or its addresses are not allowed.
        """
        return allowed_addresses(url, self.targets, self._lookup, "imports")

    def _connection(self, url: str) -> http.client.HTTPConnection:
        """Connect to an allowed address of the URL's host.

        Raises
        ------
        SourceError
            If the host or its addresses are not allowed.
        """
        scheme, host, port = origin_of(url)
        allowed = self.allowed_addresses(url)
        connection: http.client.HTTPConnection
        if scheme == "https":
            connection = http.client.HTTPSConnection(host, port, context=self._tls)
        else:
            connection = http.client.HTTPConnection(host, port)
        connection.auto_open = 0
        # Connect to the checked address: a second lookup could return a different address.
        connected = connect(allowed, port)
        if scheme == "https":
            try:
                connected = self._tls.wrap_socket(connected, server_hostname=host)
            except BaseException:
                connected.close()
                raise
        connection.sock = connected
        return connection


class _Download:
    """The attempts to receive one file."""

    def __init__(
        self,
        client: HubClient,
        url: str,
        file: RemoteFile,
        write: Callable[[bytes], None],
        restart: Callable[[], None],
        transfer: Transfer,
    ) -> None:
        self._client = client
        self._url = url
        self._file = file
        self._write = write
        self._restart = restart
        self._transfer = transfer
        self._digest = hashlib.sha256()
        self._received = 0
        self._size = file.size
        self._etag = ""
        # Time and received bytes at the start of the current window.
        self._window = time.monotonic(), 0
        self._deadline = self._window[0] + MAX_FILE_SECONDS

    def run(self, delays: Callable[[], Iterator[float]]) -> str:
        left = delays()
        failure = RetryableError("the file cannot be read")
        while (delay := next(left, None)) is not None:
            before = self._received
            try:
                return self._attempt()
            except RetryableError as error:
                failure = error
            if self._received > before:
                left = delays()  # reset the count of consecutive failures
            self._transfer.wait(delay)
        reason = failure.coded or TextTemplate.PLAIN_TEXT.text(text=str(failure))
        raise RetryableError(TextTemplate.SOURCE_FILE.text(reason, path=self._file.path))

    def _attempt(self) -> str:
        self._transfer.check()
        self._check_time()
        opened = self._client.opened(
            self._url, self._transfer, self._received, self._deadline - time.monotonic()
        )
        with _network_errors(), opened as answer:
            self._check(answer)
            if answer.start != self._received:
                self._begin_again()
            size = self._size or 0
            while self._received < size and (chunk := answer.response.read1(CHUNK_BYTES)):
                self._receive(chunk)
            if self._received >= size:
                # The rest of the response (trailers) can be endless, so there is a separate time
                # limit for it.
                with time_limit(answer.connected, self._client.end_seconds):
                    self._receive(answer.response.read1(1))
        if self._received < size:
            raise RetryableError(TextTemplate.SOURCE_CUT_OFF.text())
        found = self._digest.hexdigest()
        expected = self._file.sha256 or checksum_of_etag(self._etag)
        if expected and found != expected:
            raise SourceError(TextTemplate.SOURCE_CHECKSUM.text(path=self._file.path))
        return found

    def _check(self, answer: _Answer) -> None:
        """Check that the response belongs to the same version of the file."""
        size = self._size if answer.size is None else answer.size
        if size is None:
            raise SourceError("the server does not report the size of the file")
        if self._size not in (None, size):
            raise SourceError(f"{self._file.path} does not have the size that was announced")
        self._size = size
        if self._received and answer.etag != self._etag:
            raise SourceError(TextTemplate.SOURCE_CHANGED.text(path=self._file.path))
        self._etag = answer.etag

    def _check_time(self) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            raise SourceError(f"{self._file.path} takes more than {MAX_FILE_SECONDS:g} s")
        started, before = self._window
        if now - started >= self._client.rate_window_seconds:
            if self._received - before < MIN_BYTES_PER_SECOND * (now - started):
                rate = MIN_BYTES_PER_SECOND // 1024
                raise SlowSource(TextTemplate.SOURCE_SLOW.text(path=self._file.path, rate=rate))
            self._window = now, self._received

    def _begin_again(self) -> None:
        _write(self._restart)
        self._received = self._transfer.partial_bytes = 0
        self._window = self._window[0], 0
        self._digest = hashlib.sha256()

    def _receive(self, chunk: bytes) -> None:
        self._transfer.check()
        self._check_time()
        if self._received + len(chunk) > (self._size or 0):
            raise SourceError(f"{self._file.path} is longer than announced")
        _write(self._write, chunk)
        self._digest.update(chunk)
        self._received += len(chunk)
        self._transfer.partial_bytes = self._received


class _StorageFailure(Exception):
    """An ``OSError`` of the storage host; distinguishes it from an error of the network."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _write(work: Callable[..., None], *arguments: bytes) -> None:
    try:
        work(*arguments)
    except OSError as error:
        raise _StorageFailure(error) from error


@contextlib.contextmanager
def _network_errors() -> Iterator[None]:
    """Raise ``RetryableError`` for network errors, and the original error of the storage host."""
    try:
        yield
    except _StorageFailure as failure:
        raise failure.error from None
    except (OSError, http.client.HTTPException) as error:
        raise RetryableError(problem_of(error)) from None


def _answer(
    response: http.client.HTTPResponse,
    connected: socket.socket,
    start: int,
    linked: dict[str, str],
) -> _Answer:
    status = response.status
    if status in (401, 403):
        raise SourceError(TextTemplate.SOURCE_REFUSED.text(code=status))
    if status == 404:
        raise SourceError(TextTemplate.SOURCE_NOT_FOUND.text())
    if status == 429 or status >= 500:
        raise RetryableError(TextTemplate.SOURCE_STATUS.text(code=status))
    if status not in (200, 206):
        raise SourceError(TextTemplate.SOURCE_STATUS.text(code=status))
    etag = linked.get("X-Linked-ETag") or response.headers.get("ETag") or ""
    size = _number(linked.get("X-Linked-Size")) if "X-Linked-Size" in linked else None
    if status == 206:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range") or "")
        if found is None or int(found[1]) != start:
            raise SourceError("the server does not return the requested part of the file")
        return _Answer(response, connected, start, int(found[2]) if size is None else size, etag)
    if size is None:
        size = _number(response.headers.get("Content-Length"))
    return _Answer(response, connected, 0, size, etag)


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= 18
    return int(text) if text is not None and is_number else None
