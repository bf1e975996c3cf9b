"""`/vfolders/{key}/files`, `/content` and `/archive`: the files of a folder."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from pydantic import Field, StringConstraints
from tornado.iostream import StreamClosedError
from tornado.web import stream_request_body

from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.core.folders.vfolders import Expected
from bai_services.core.listing import ListQuery
from bai_services.core.user_input import read_whole

from ..base import APIHandler, operation
from ..fields import Body, Shown

PathText = Annotated[str, StringConstraints(max_length=4096)]

_ARCHIVES = {"zip": "application/zip", "tar": "application/x-tar"}
_TAG = "vfolders"
_PATH = {"path": "path inside the folder, with / as separator"}
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")

# From this size on, sendfile() is faster than reading and writing.
BIG_BYTES = 4 * 2**20
# Up to this much of a refused body is read anyway, so that a client that sends it in one go, also
# through a proxy, receives the reason rather than a broken connection.
MAX_DISCARDED_BYTES = 64 * 2**20


class FileEntry(Shown):
    """``type`` is file, directory, link or other; ``size`` is in bytes; ``etag`` is only set
    for files.
    """

    name: str
    type: str
    size: int
    modified_at: datetime
    etag: str | None


class NewDirectories(Body):
    """``exists_ok``: existing directories are not an error."""

    paths: list[PathText] = Field(min_length=1, max_length=1000)
    exists_ok: bool = False


class Move(Body):
    """``replace``: an existing file at the target is replaced."""

    source: PathText
    target: PathText
    replace: bool = False


class Copy(Body):
    source: PathText
    target: PathText


class Unpacked(Shown):
    files: int
    bytes: int


class FilesHandler(APIHandler):
    @operation(
        "List a directory of a folder", tag=_TAG, returns=FileEntry, is_list=True, parameters=_PATH
    )
    async def get(self, key: str, query: ListQuery) -> Any:
        filters = {name: text for name, text in query.filters.items() if name != "path"}
        return await self.manager.folders.files.page(
            self.caller, key, path_of(self), replace(query, filters=filters)
        )


class DirectoriesHandler(APIHandler):
    @operation(
        "Make directories", tag=_TAG, body=NewDirectories, returns=list[str],
        status=HTTPStatus.CREATED,
    )  # fmt: skip
    async def post(self, key: str, body: NewDirectories) -> Any:
        return await self.manager.folders.files.make_directories(
            self.caller, key, body.paths, body.exists_ok
        )


class MoveHandler(APIHandler):
    @operation("Move or rename a file or directory", tag=_TAG, body=Move, returns=FileEntry)
    async def post(self, key: str, body: Move) -> Any:
        return await self.manager.folders.files.move(
            self.caller, key, body.source, body.target, body.replace
        )


class CopyHandler(APIHandler):
    @operation("Copy a file or directory in a folder", tag=_TAG, body=Copy, returns=FileEntry)
    async def post(self, key: str, body: Copy) -> Any:
        return await self.manager.folders.files.copy(self.caller, key, body.source, body.target)


class ReceivingHandler(APIHandler):
    """A body that is received in pieces, whatever its size.

    ``begin`` returns the receiver, with ``receive`` or ``write``, ``commit`` and ``abort``.
    """

    receives: ClassVar[str] = "PUT"

    def initialize(self) -> None:
        self._upload: Any = None
        self._refusal: BaiError | None = None
        self._discarded = 0

    async def begin(self, size: int | None) -> Any:
        raise NotImplementedError

    async def prepare(self) -> None:
        """Decide whether to accept the body before reading any of it."""
        if self.request.method != self.receives:
            return
        # The size of a file is checked where its limit is known; the server's limit is for other
        # bodies.
        self.request.connection.set_max_body_size(2**62)  # type: ignore[union-attr]
        size = size_of(self)
        try:
            await self.sign_in()
            self._upload = await self.begin(size)
        except BaiError as error:
            # A client that asks first (Expect: 100-continue) is answered before it sends the body.
            if "Expect" in self.request.headers or (size or 0) > MAX_DISCARDED_BYTES:
                raise
            self._refusal = error
        if self._upload is not None and size and "Transfer-Encoding" not in self.request.headers:
            await self._receive(size)

    async def _receive(self, size: int) -> None:
        """Read the body directly from the socket: tornado would copy every byte three more
        times.
        """
        headers = self.request.headers
        stream = self.request.connection.stream  # type: ignore[union-attr]
        if headers.get("Expect") == "100-continue":
            del headers["Expect"]
            await stream.write(b"HTTP/1.1 100 (Continue)\r\n\r\n")
        left = size

        async def some(room: memoryview) -> int:
            nonlocal left
            got: int = await stream.read_into(room, partial=True)
            left -= got
            return got

        try:
            await self._upload.receive(some, size)
        except StreamClosedError:
            pass  # tornado notices it as well and calls ``on_connection_close``
        except BaiError as error:
            self._refusal = error
            self._forget()
        # What tornado still has to read: nothing, or the rest of a refused body.
        headers["Content-Length"] = str(left)

    async def data_received(self, chunk: bytes) -> None:
        if self._refusal is None and self._upload is not None:
            try:
                await self._upload.write(chunk)
                return
            except BaiError as error:
                self._refusal = error
                self._forget()
        self._discarded += len(chunk)
        if self._discarded > MAX_DISCARDED_BYTES and not self._finished:
            reason = self._refusal or InvalidRequest("this request must not have a body")
            self.send_error(exc_info=(type(reason), reason, None))

    async def commit(self) -> Any:
        """Return the result of receiving the body."""
        if self._refusal is not None:
            raise self._refusal
        return await self._upload.commit()

    def on_finish(self) -> None:
        self._forget()

    def on_connection_close(self) -> None:
        self._forget()
        super().on_connection_close()

    def _forget(self) -> None:
        if self._upload is not None:
            self.manager.folders.files.forget(self._upload)
            self._upload = None


@stream_request_body
class ContentHandler(ReceivingHandler):
    """The content of one file."""

    async def begin(self, size: int | None) -> Any:
        return await self.manager.folders.files.upload(
            self.caller, self.path_kwargs["key"], self._path(), size, expected_of(self)
        )

    @operation(
        "Download a file; Range, If-Range and If-None-Match are supported",
        tag=_TAG,
        parameters=_PATH,
        is_file=True,
    )
    async def get(self, key: str) -> None:
        file = await self.manager.folders.files.download(self.caller, key, self._path())
        try:
            await self._send(file)
        finally:
            await file.close()

    @operation(
        "Upload a file; visible when complete. If-Match and If-None-Match: * are supported",
        tag=_TAG,
        returns=FileEntry,
        parameters=_PATH,
        is_file=True,
    )
    async def put(self, key: str) -> Any:
        entry = await self.commit()
        self.set_header("ETag", f'"{entry.etag}"')
        return entry

    @operation(
        "Remove a file, a link or a directory",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
        parameters={**_PATH, "recursive": "true: remove a directory with its contents"},
    )
    async def delete(self, key: str) -> None:
        is_recursive = self.get_query_argument("recursive", "") == "true"
        await self.manager.folders.files.remove(self.caller, key, self._path(), is_recursive)

    async def _send(self, file: Any) -> None:
        etag = f'"{file.etag}"'
        self.set_header("ETag", etag)
        self.set_header("Last-Modified", file.modified_at)
        self.set_header("Accept-Ranges", "bytes")
        self.set_header("Cache-Control", "private, no-cache")
        if etag in self.request.headers.get("If-None-Match", ""):
            self.set_status(HTTPStatus.NOT_MODIFIED)
            self.finish()
            return
        asked = self.request.headers.get("Range", "")
        if self.request.headers.get("If-Range", etag) != etag:
            asked = ""
        part = byte_range(asked, file.size)
        if part is None:
            self.set_status(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.set_header("Content-Range", f"bytes */{file.size}")
            self.finish({"error": "invalid-request", "message": "no such range", "details": {}})
            return
        start, length = part
        if length != file.size:
            self.set_status(HTTPStatus.PARTIAL_CONTENT)
            self.set_header("Content-Range", f"bytes {start}-{start + length - 1}/{file.size}")
        set_file_headers(self, self._path(), "application/octet-stream")
        self.set_header("Content-Length", str(length))
        if length >= BIG_BYTES:
            await self._send_big(file, start, length)
            return
        sent = 0
        async for chunk in file.chunks(start, length):
            self.write(chunk)
            # Waits for the client, so that at most one piece is in memory.
            await self.flush()
            sent += len(chunk)
        if sent == length:
            self.finish()
        else:
            # The file has shrunk meanwhile. A broken connection shows that, a short answer would
            # not.
            self.request.connection.stream.close()  # type: ignore[union-attr]

    async def _send_big(self, file: Any, start: int, length: int) -> None:
        """Send a file with sendfile(), bypassing tornado's buffers; the connection is closed
        afterwards.
        """
        self.set_header("Connection", "close")
        with contextlib.suppress(StreamClosedError):
            await self.flush()
            stream = self.detach()
            try:
                sent = 0 if stream.closed() else await file.send(stream.socket, start, length)
                async for chunk in file.chunks(start + sent, length - sent):
                    await stream.write(chunk)
            finally:
                # Also if the file has shrunk meanwhile: the client then receives less than
                # announced.
                stream.close()
        self.application.log_request(self)
        self.on_finish()

    def _path(self) -> str:
        return path_of(self)


@stream_request_body
class ArchiveHandler(ReceivingHandler):
    """A directory tree in one stream."""

    async def begin(self, size: int | None) -> Any:
        return await self.manager.folders.files.upload_archive(
            self.caller, self.path_kwargs["key"], path_of(self), size
        )

    @operation(
        "Download files and directories as one archive, created while it is sent",
        tag=_TAG,
        parameters={"path": "path to include; may be repeated", "format": "zip (default) or tar"},
        is_file=True,
    )
    async def get(self, key: str) -> None:
        form = self.get_query_argument("format", "zip")
        found, name = await self.manager.folders.files.archive(
            self.caller, key, paths_of(self) or [""], form
        )
        try:
            set_file_headers(self, name, _ARCHIVES[form])
            async for piece in found.chunks():
                self.write(piece)
                await self.flush()
            self.finish()
        except BaiError:
            if not self._headers_written:
                raise
            # An incomplete archive must not look like a complete one.
            self.request.connection.stream.close()  # type: ignore[union-attr]
        finally:
            await found.close()

    @operation(
        "Upload a tar archive, unpacked into a directory once it is complete",
        tag=_TAG,
        returns=Unpacked,
        parameters=_PATH,
        is_file=True,
    )
    async def put(self, key: str) -> Any:
        return await self.commit()


def set_file_headers(handler: APIHandler, path: str, kind: str) -> None:
    """Mark the answer as a file to be saved, so that a browser never renders it as a page."""
    handler.set_header("Content-Type", kind)
    handler.set_header("Content-Disposition", content_disposition(path))
    handler.set_header("Content-Security-Policy", "sandbox; default-src 'none'")


def expected_of(handler: APIHandler) -> Expected:
    """Return the precondition of a request on the file that it replaces."""
    match = handler.request.headers.get("If-Match", "").strip()
    is_new = handler.request.headers.get("If-None-Match", "").strip() == "*"
    return Expected(match.removeprefix("W/").strip('"') or None, is_new)


def paths_of(handler: APIHandler) -> list[str]:
    """Return every ``path`` of a request, unchanged."""
    try:
        return [given.decode() for given in handler.request.query_arguments.get("path", [])]
    except UnicodeDecodeError:
        raise InvalidRequest("the path is not valid UTF-8", field="path") from None


def path_of(handler: APIHandler) -> str:
    """Return the ``path`` of a request unchanged; tornado would alter its spaces and NULs."""
    return (paths_of(handler) or [""])[-1]


def size_of(handler: APIHandler) -> int | None:
    """Return the size of the body according to the request's headers, None if unknown."""
    text = handler.request.headers.get("Content-Length", "")
    return read_whole(text)


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """Return start and length of what a Range header asks of ``size`` bytes.

    Everything for no header, for one that is not understood and for several
    ranges; None for a range that lies outside.

    >>> byte_range("bytes=2-", 10), byte_range("bytes=-3", 10), byte_range("bytes=10-", 10)
    ((2, 8), (7, 3), None)
    """
    match = _RANGE.fullmatch(header.replace(" ", ""))
    if match is None or match.groups() == ("", ""):
        return 0, size
    first, last = match.groups()
    if not first:
        length = min(int(last), size)
        return (size - length, length) if length else None
    start = int(first)
    if last and int(last) < start:
        return 0, size
    if start >= size:
        return None
    end = min(int(last), size - 1) if last else size - 1
    return start, end - start + 1


def content_disposition(path: str) -> str:
    """Return the header under which a browser saves a file: never shown, its name made safe.

    >>> content_disposition("a/b.txt")
    'attachment; filename="b.txt"; filename*=UTF-8\\'\\'b.txt'
    """
    name = path.rstrip("/").rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._ ()+=@,-]", "_", name) or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


ROUTES = [
    (r"/vfolders/(?P<key>[^/]+)/files", FilesHandler),
    (r"/vfolders/(?P<key>[^/]+)/directories", DirectoriesHandler),
    (r"/vfolders/(?P<key>[^/]+)/move", MoveHandler),
    (r"/vfolders/(?P<key>[^/]+)/copy", CopyHandler),
    (r"/vfolders/(?P<key>[^/]+)/content", ContentHandler),
    (r"/vfolders/(?P<key>[^/]+)/archive", ArchiveHandler),
]
