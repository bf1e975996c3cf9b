"""`/vfolders/{key}/uploads`: resumable uploads with the tus 1.0 protocol.

https://tus.io/protocols/resumable-upload
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus

from tornado.web import stream_request_body

from bai_services.core.errors import BaiError, ChecksumMismatch, InvalidRequest
from bai_services.manager.folders.uploads import CHECKSUMS, Progress, UploadChunk, UploadRequest

from ..base import APIHandler, operation
from .files import StreamedBodyHandler, path_of

VERSION = "1.0.0"
EXTENSIONS = "creation,termination,checksum,concatenation,expiration"
CHECKSUM_MISMATCH = 460
_CHUNK_TYPE = "application/offset+octet-stream"
_TAG = "vfolders"
_UPLOAD_URL = re.compile(r"/uploads/([0-9a-f-]{36})/?$")
_PATH = {
    "path": "directory to which the path in Upload-Metadata is relative; "
    "if the metadata has no path, the path of the file"
}


class _TusHandler(StreamedBodyHandler[Progress]):
    streamed_method = "PATCH"

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Tus-Resumable", VERSION)
        self.set_header("Tus-Version", VERSION)

    def check_version(self) -> None:
        """Reject other versions of the protocol; accept requests without a version."""
        if self.request.headers.get("Tus-Resumable", VERSION) != VERSION:
            raise InvalidRequest(f"this server supports tus {VERSION} only", tus_version=VERSION)

    def error_status(self, error: BaiError) -> int:
        if isinstance(error, ChecksumMismatch):
            return CHECKSUM_MISMATCH
        if error.details.get("header") == "Content-Type":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        if "tus_version" in error.details:
            return HTTPStatus.PRECONDITION_FAILED
        return super().error_status(error)

    def whole_number(self, header: str) -> int:
        """Return the value of a header that must be a whole number.

        Raises
        ------
        InvalidRequest
            If the header is missing or not a whole number of at most 18 digits.
        """
        text = self.request.headers.get(header, "")
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise InvalidRequest(f"the header {header} must be a whole number", header=header)
        return int(text)

    def set_progress_headers(self, progress: Progress) -> None:
        self.set_header("Upload-Offset", str(progress.offset))
        expires = datetime.fromtimestamp(progress.expires_at, UTC)
        if not progress.is_done:
            self.set_header("Upload-Expires", format_datetime(expires, usegmt=True))

    async def options(self, **path: str) -> None:
        self.set_status(HTTPStatus.NO_CONTENT)
        self.set_header("Tus-Extension", EXTENSIONS)
        self.set_header("Tus-Max-Size", str(self.manager.folders.uploads.max_bytes))
        self.set_header("Tus-Checksum-Algorithm", ",".join(CHECKSUMS))


class UploadsHandler(_TusHandler):
    streamed_method = ""

    @operation(
        "Start a resumable upload (tus creation, concatenation)",
        tag=_TAG,
        status=HTTPStatus.CREATED,
        parameters=_PATH,
    )
    async def post(self, key: str) -> None:
        await self.manager.folders.uploads.require(self.caller, key)
        self.check_version()
        upload = await self.manager.folders.uploads.create(self.caller, key, self._upload_request())
        base = self.request.path.partition("/vfolders/")[0]
        self.set_header("Location", f"{base}/vfolders/{upload.vfolder_id}/uploads/{upload.id}")
        self.set_progress_headers(upload)

    def _upload_request(self) -> UploadRequest:
        """Return the request that the tus headers describe."""
        metadata = metadata_of(self.request.headers.get("Upload-Metadata", ""))
        concat = self.request.headers.get("Upload-Concat", "").strip()
        parts: tuple[str, ...] = ()
        if concat.startswith("final"):
            matches = [_UPLOAD_URL.search(url) for url in concat.partition(";")[2].split()]
            if not matches or None in matches:
                raise InvalidRequest(
                    "Upload-Concat must be 'final;' followed by the URLs of the partial uploads",
                    header="Upload-Concat",
                )
            parts = tuple(match[1] for match in matches if match is not None)
        elif concat not in ("", "partial"):
            raise InvalidRequest(
                "Upload-Concat must be 'partial', or 'final;' followed by URLs",
                header="Upload-Concat",
            )
        unpack = metadata.get("unpack", "")
        if unpack not in ("", "tar"):
            raise InvalidRequest("only tar archives can be unpacked", header="Upload-Metadata")
        etag = metadata.get("if-match", "").strip('"')
        return UploadRequest(
            path=self._target(metadata),
            length=0 if parts else self.whole_number("Upload-Length"),
            is_partial=concat == "partial",
            is_archive=bool(unpack),
            parts=parts,
            etag=etag or None,
            is_new=metadata.get("if-none-match") == "*",
        )

    def _target(self, metadata: dict[str, str]) -> str:
        directory = path_of(self)
        name = next(
            (metadata[k] for k in ("path", "relativePath", "filename", "name") if metadata.get(k)),
            "",
        )
        return "/".join(part for part in (directory.rstrip("/"), name) if part)


@stream_request_body
class UploadHandler(_TusHandler):
    """Receives the chunks of one upload."""

    @operation("Read the progress of an upload (tus)", tag=_TAG)
    async def head(self, key: str, upload: str) -> None:
        self.check_version()
        progress = await self.manager.folders.uploads.prepare_resume(self.caller, key, upload)
        self.set_progress_headers(progress)
        self.set_header("Upload-Length", str(progress.length))
        if progress.is_partial:
            self.set_header("Upload-Concat", "partial")

    async def begin(self, size: int | None) -> UploadChunk:
        self.check_version()
        if self.request.headers.get("Content-Type") != _CHUNK_TYPE:
            raise InvalidRequest(f"the Content-Type must be {_CHUNK_TYPE}", header="Content-Type")
        return await self.manager.folders.uploads.open_chunk(
            self.caller,
            self.path_kwargs["key"],
            self.path_kwargs["upload"],
            self.whole_number("Upload-Offset"),
            checksum_of(self.request.headers.get("Upload-Checksum", "")),
        )

    @operation(
        "Upload the next chunk (tus)",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
        is_file=True,
    )
    async def patch(self, key: str, upload: str) -> None:
        progress = await self.commit()
        self.set_progress_headers(progress)
        if progress.entry is not None:
            self.set_header("ETag", f'"{progress.entry.etag}"')

    @operation("Abort an upload (tus termination)", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str, upload: str) -> None:
        self.check_version()
        await self.manager.folders.uploads.delete(self.caller, key, upload)


def metadata_of(header: str) -> dict[str, str]:
    """Return the decoded values of ``Upload-Metadata`` by name.

    Raises
    ------
    InvalidRequest
        If a value is not base64 of UTF-8 text.

    >>> metadata_of("path YS9i,empty")
    {'path': 'a/b', 'empty': ''}
    """
    metadata = {}
    for pair in filter(None, (part.strip() for part in header.split(","))):
        name, _, value = pair.partition(" ")
        try:
            metadata[name] = base64.b64decode(value.strip(), validate=True).decode()
        except ValueError:
            raise InvalidRequest(
                f"the value of {name!r} must be base64 of UTF-8", header="Upload-Metadata"
            ) from None
    return metadata


def checksum_of(header: str) -> tuple[str, bytes] | None:
    """Parse ``Upload-Checksum``: return algorithm and digest, None if the header is empty.

    Raises
    ------
    InvalidRequest
        If the algorithm is not supported or the digest is not base64.
    """
    if not header:
        return None
    name, _, value = header.strip().partition(" ")
    if name not in CHECKSUMS:
        raise InvalidRequest(
            f"the checksum algorithm must be one of {', '.join(CHECKSUMS)}",
            header="Upload-Checksum",
        )
    try:
        return name, base64.b64decode(value.strip(), validate=True)
    except ValueError:
        raise InvalidRequest("the checksum must be base64", header="Upload-Checksum") from None


ROUTES: list[tuple[str, type[APIHandler]]] = [
    (r"/vfolders/(?P<key>[^/]+)/uploads", UploadsHandler),
    (r"/vfolders/(?P<key>[^/]+)/uploads/(?P<upload>[^/]+)", UploadHandler),
]
