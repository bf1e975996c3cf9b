"""`/vfolders/{key}/files`, `/content`, `/archive` and others: the files of a folder."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, ClassVar, Generic, TypeVar
from urllib.parse import quote

from pydantic import Field, StringConstraints
from tornado.iostream import StreamClosedError
from tornado.web import stream_request_body

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.core.folders.entries import Entry, Unpacked
from bai_services.core.folders.vfolders import Precondition
from bai_services.core.listing import ListQuery, Page
from bai_services.core.user_input import read_whole
from bai_services.manager.folders.files import OpenFile, Upload

from ..base import APIHandler, operation
from ..fields import Body, ResponseModel
from ..streams import cancel_on_access_change

PathText = Annotated[str, StringConstraints(max_length=4096)]

T = TypeVar("T")

_ARCHIVES = {"zip": "application/zip", "tar": "application/x-tar"}
_TAG = "vfolders"
_PATH = {"path": "path in the folder, with / as separator"}
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")

# Minimum size at which sendfile() is faster than reading and writing.
SENDFILE_MIN_BYTES = 4 * 2**20
# Maximum bytes of a rejected body to read and discard. Clients that read the response only after
# sending the whole body would otherwise get a broken connection instead of the error.
MAX_DISCARDED_BYTES = 64 * 2**20


class FileEntry(ResponseModel):
    """``type``: file, directory, link or other. ``size``: in bytes. ``etag``: only for files."""

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
    """``replace``: replace an existing file at ``target``."""

    source: PathText
    target: PathText
    replace: bool = False


class Copy(Body):
    source: PathText
    target: PathText


class UnpackResult(ResponseModel):
    """Number of unpacked files and their total size in bytes."""

    files: int
    bytes: int


class FilesHandler(APIHandler):
    @operation(
        "List a directory of a folder", tag=_TAG, returns=FileEntry, is_list=True, parameters=_PATH
    )
    async def get(self, key: str, query: ListQuery) -> Page[Entry]:
        filters = {name: text for name, text in query.filters.items() if name != "path"}
        return await self.manager.folders.files.page(
            self.caller, key, path_of(self), replace(query, filters=filters)
        )


class DirectoriesHandler(APIHandler):
    @operation(
        "Create directories", tag=_TAG, body=NewDirectories, returns=list[str],
        status=HTTPStatus.CREATED,
    )  # fmt: skip
    async def post(self, key: str, body: NewDirectories) -> list[str]:
        return await self.manager.folders.files.make_directories(
            self.caller, key, body.paths, body.exists_ok
        )


class MoveHandler(APIHandler):
    @operation("Move or rename a file or directory", tag=_TAG, body=Move, returns=FileEntry)
    async def post(self, key: str, body: Move) -> Entry:
        return await self.manager.folders.files.move(
            self.caller, key, body.source, body.target, body.replace
        )


class CopyHandler(APIHandler):
    @operation("Copy a file or directory in a folder", tag=_TAG, body=Copy, returns=FileEntry)
    async def post(self, key: str, body: Copy) -> Entry:
        return await self.manager.folders.files.copy(self.caller, key, body.source, body.target)


class StreamedBodyHandler(APIHandler, Generic[T]):
    """Base class of handlers that stream a request body of any size to storage.

    ``begin`` returns the manager's upload, to which the body is written.
    """

    streamed_method: ClassVar[str] = "PUT"

    def initialize(self) -> None:
        self._upload: Upload[T] | None = None
        self._error: BaiError | None = None
        self._discarded_bytes = 0

    async def begin(self, size: int | None) -> Upload[T]:
        """Start and return the upload; ``size`` is in bytes, None if unknown."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """Authenticate the caller and start the upload before any of the body is read."""
        if self.request.method != self.streamed_method:
            return
        # Disable the server's limit; the manager limits the size of files.
        self.request.connection.set_max_body_size(2**62)  # type: ignore[union-attr]
        size = size_of(self)
        try:
            await self.sign_in()
            self._upload = await self.begin(size)
        except BaiError as error:
            # Respond immediately if the client has not sent the body yet (Expect: 100-continue), or
            # if the body is too large to be discarded.
            if "Expect" in self.request.headers or (size or 0) > MAX_DISCARDED_BYTES:
                raise
            self._error = error
        if self._upload is not None and size and "Transfer-Encoding" not in self.request.headers:
            await self._receive(self._upload, size)

    async def _receive(self, upload: Upload[T], size: int) -> None:
        """Read the body directly from the stream, to avoid three copies of every byte."""
        headers = self.request.headers
        stream = self.request.connection.stream  # type: ignore[union-attr]
        if headers.get("Expect") == "100-continue":
            del headers["Expect"]
            await stream.write(b"HTTP/1.1 100 (Continue)\r\n\r\n")
        bytes_left = size

        async def read_into(buffer: memoryview) -> int:
            nonlocal bytes_left
            count: int = await stream.read_into(buffer, partial=True)
            bytes_left -= count
            return count

        try:
            await upload.receive(read_into, size)
        except StreamClosedError:
            pass  # tornado then calls ``on_connection_close``
        except BaiError as error:
            self._error = error
            self._discard_upload()
        # Tornado reads and discards the remaining bytes of a rejected body.
        headers["Content-Length"] = str(bytes_left)

    async def data_received(self, chunk: bytes) -> None:
        if self._error is None and self._upload is not None:
            try:
                await self._upload.write(chunk)
                return
            except BaiError as error:
                self._error = error
                self._discard_upload()
        self._discarded_bytes += len(chunk)
        if self._discarded_bytes > MAX_DISCARDED_BYTES and not self._finished:
            reason = self._error or InvalidRequest("this request must not have a body")
            self.send_error(exc_info=(type(reason), reason, None))

    async def commit(self) -> T:
        """Complete the upload and return its result; raise the error if the body was rejected."""
        if self._error is not None:
            raise self._error
        if self._upload is None:
            raise InvalidRequest("this request must have a body")
        # An upload can take hours, so authenticate the caller again: ``commit`` then checks the
        # current permissions.
        return await self._upload.commit(await self.recheck_caller())

    def on_finish(self) -> None:
        self._discard_upload()

    def on_connection_close(self) -> None:
        self._discard_upload()
        super().on_connection_close()

    def _discard_upload(self) -> None:
        if self._upload is not None:
            self.manager.folders.files.abort_in_background(self._upload)
            self._upload = None


@stream_request_body
class ContentHandler(StreamedBodyHandler[Entry]):
    """Downloads and uploads one file; removes a file, a link or a directory."""

    async def begin(self, size: int | None) -> Upload[Entry]:
        return await self.manager.folders.files.upload(
            self.caller, self.path_kwargs["key"], self._path(), size, precondition_of(self)
        )

    @operation(
        "Download a file; supports Range, If-Range and If-None-Match",
        tag=_TAG,
        parameters=_PATH,
        is_file=True,
    )
    async def get(self, key: str) -> None:
        folder_id, file = await self.manager.folders.files.download(self.caller, key, self._path())
        try:
            async with end_without_access(self, folder_id):
                await self._send(file)
        finally:
            await file.close()

    @operation(
        "Upload a file, visible once complete; supports If-Match and If-None-Match: *",
        tag=_TAG,
        returns=FileEntry,
        parameters=_PATH,
        is_file=True,
    )
    async def put(self, key: str) -> Entry:
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

    async def _send(self, file: OpenFile) -> None:
        etag = f'"{file.etag}"'
        self.set_header("ETag", etag)
        self.set_header("Last-Modified", file.modified_at)
        self.set_header("Accept-Ranges", "bytes")
        self.set_header("Cache-Control", "private, no-cache")
        if etag in self.request.headers.get("If-None-Match", ""):
            self.set_status(HTTPStatus.NOT_MODIFIED)
            self.finish()
            return
        requested = self.request.headers.get("Range", "")
        if self.request.headers.get("If-Range", etag) != etag:
            requested = ""
        part = byte_range(requested, file.size)
        if part is None:
            self.set_status(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.set_header("Content-Range", f"bytes */{file.size}")
            message = f"the range is outside the file of {file.size} bytes"
            self.finish({"error": "invalid-request", "message": message, "details": {}})
            return
        start, length = part
        if length != file.size:
            self.set_status(HTTPStatus.PARTIAL_CONTENT)
            self.set_header("Content-Range", f"bytes {start}-{start + length - 1}/{file.size}")
        set_file_headers(self, self._path(), "application/octet-stream")
        self.set_header("Content-Length", str(length))
        if length >= SENDFILE_MIN_BYTES:
            await self._sendfile(file, start, length)
            return
        sent = 0
        async for chunk in file.chunks(start, length):
            self.write(chunk)
            # Back-pressure: at most one chunk is in memory.
            await self.flush()
            sent += len(chunk)
        if sent == length:
            self.finish()
        else:
            # The file has shrunk since its size was read. Close the connection, so that the client
            # notices.
            self.request.connection.stream.close()  # type: ignore[union-attr]

    async def _sendfile(self, file: OpenFile, start: int, length: int) -> None:
        """Send ``length`` bytes of a file from ``start`` with sendfile(), bypassing tornado.

        Then close the connection.
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
                # If the file has shrunk, the client notices that the response is incomplete.
                stream.close()
        self.application.log_request(self)
        self.on_finish()

    def _path(self) -> str:
        return path_of(self)


@stream_request_body
class ArchiveHandler(StreamedBodyHandler[Unpacked]):
    """Downloads and uploads a directory tree as one archive."""

    async def begin(self, size: int | None) -> Upload[Unpacked]:
        return await self.manager.folders.files.upload_archive(
            self.caller, self.path_kwargs["key"], path_of(self), size
        )

    @operation(
        "Download files and directories as an archive, which is created while it is sent",
        tag=_TAG,
        parameters={"path": "path to include; may be repeated", "format": "zip (default) or tar"},
        repeated=("path",),
        is_file=True,
        media_types=_ARCHIVES.values(),
    )
    async def get(self, key: str) -> None:
        format_ = self.get_query_argument("format", "zip")
        folder_id, archive, name = await self.manager.folders.files.archive(
            self.caller, key, paths_of(self) or [""], format_
        )
        try:
            set_file_headers(self, name, _ARCHIVES[format_])
            async with end_without_access(self, folder_id):
                async for chunk in archive.chunks():
                    self.write(chunk)
                    await self.flush()
                self.finish()
        finally:
            await archive.close()

    @operation(
        "Upload a tar archive, which is unpacked into a directory once complete",
        tag=_TAG,
        returns=UnpackResult,
        parameters=_PATH,
        is_file=True,
    )
    async def put(self, key: str) -> Unpacked:
        return await self.commit()


@asynccontextmanager
async def end_without_access(handler: APIHandler, folder_id: str) -> AsyncIterator[None]:
    """End a download when its caller may no longer download the folder's files.

    If an error occurs before the first byte is sent, it is raised. If it occurs later, the
    connection is closed, so that the client notices that the file is incomplete.
    """

    async def require(caller: Caller) -> None:
        await handler.manager.folders.files.find_readable(caller, folder_id)

    try:
        async with cancel_on_access_change(handler, require=require):
            yield
    except BaiError:
        if not handler._headers_written:
            raise
        # A download with sendfile has detached its connection, and closed it.
        if not handler._finished:
            handler._finished = True
            handler.request.connection.stream.close()  # type: ignore[union-attr]


def set_file_headers(handler: APIHandler, path: str, content_type: str) -> None:
    """Mark the response as a download, so that a browser never renders it as a page."""
    handler.set_header("Content-Type", content_type)
    handler.set_header("Content-Disposition", content_disposition(path))
    handler.set_header("Content-Security-Policy", "sandbox; default-src 'none'")


def precondition_of(handler: APIHandler) -> Precondition:
    """Return the precondition of an upload, from If-Match and If-None-Match."""
    match = handler.request.headers.get("If-Match", "").strip()
    is_new = handler.request.headers.get("If-None-Match", "").strip() == "*"
    return Precondition(match.removeprefix("W/").strip('"') or None, is_new)


def paths_of(handler: APIHandler) -> list[str]:
    """Return all ``path`` query parameters, unchanged.

    Raises
    ------
    InvalidRequest
        If a path is not valid UTF-8.
    """
    try:
        return [path.decode() for path in handler.request.query_arguments.get("path", [])]
    except UnicodeDecodeError:
        raise InvalidRequest("the path is not valid UTF-8", field="path") from None


def path_of(handler: APIHandler) -> str:
    """Return the last ``path`` query parameter, or an empty string.

    ``get_query_argument`` is not used: it strips spaces and replaces control characters.
    """
    return (paths_of(handler) or [""])[-1]


def size_of(handler: APIHandler) -> int | None:
    """Return the Content-Length of a request in bytes, None if unknown."""
    text = handler.request.headers.get("Content-Length", "")
    return read_whole(text)


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """Return start and length of the range that a Range header selects from ``size`` bytes.

    Return the full range if the header is missing, invalid, or contains several ranges. Return None
    if the range is outside the file.

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
    """Return a Content-Disposition header that makes a browser save a file under a safe name.

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
