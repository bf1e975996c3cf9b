"""`/vfolders/{key}/uploads`: resumable uploads with the tus 1.0 protocol.

https://tus.io/protocols/resumable-upload
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any

from tornado.web import stream_request_body

from bai_services.core.errors import BaiError, ChecksumMismatch, InvalidRequest
from bai_services.manager.folders.uploads import CHECKSUMS, UploadRequest

from ..base import APIHandler, operation
from .files import ReceivingHandler, path_of

VERSION = "1.0.0"
EXTENSIONS = "creation,termination,checksum,concatenation,expiration"
CHECKSUM_MISMATCH = 460
_PIECE_TYPE = "application/offset+octet-stream"
_TAG = "vfolders"
_PART = re.compile(r"/uploads/([0-9a-f-]{36})/?$")
_PATH = {"path": "directory in the folder; without a path in the metadata, the path of the upload"}


class _TusHandler(ReceivingHandler):
    receives = "PATCH"

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Tus-Resumable", VERSION)
        self.set_header("Tus-Version", VERSION)

    def check_version(self) -> None:
        """Refuse other protocol versions; a request without a version is accepted."""
        if self.request.headers.get("Tus-Resumable", VERSION) != VERSION:
            raise InvalidRequest(f"this server speaks tus {VERSION}", tus_version=VERSION)

    def error_status(self, error: BaiError) -> int:
        if isinstance(error, ChecksumMismatch):
            return CHECKSUM_MISMATCH
        if error.details.get("header") == "Content-Type":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        if "tus_version" in error.details:
            return HTTPStatus.PRECONDITION_FAILED
        return super().error_status(error)

    def number(self, header: str) -> int:
        """Return the value of a header that must be a whole number."""
        text = self.request.headers.get(header, "")
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise InvalidRequest(f"the header {header} must be a whole number", header=header)
        return int(text)

    def show(self, progress: Any) -> None:
        """Set the headers that describe the progress of an upload."""
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
    receives = ""

    @operation(
        "Start a resumable upload (tus creation, concatenation)",
        tag=_TAG,
        status=HTTPStatus.CREATED,
        parameters=_PATH,
    )
    async def post(self, key: str) -> None:
        await self.manager.folders.uploads.require(self.caller, key)
        self.check_version()
        made = await self.manager.folders.uploads.create(self.caller, key, self._wish())
        base = self.request.path.partition("/vfolders/")[0]
        self.set_header("Location", f"{base}/vfolders/{made.vfolder_id}/uploads/{made.id}")
        self.show(made)

    def _wish(self) -> UploadRequest:
        metadata = metadata_of(self.request.headers.get("Upload-Metadata", ""))
        concat = self.request.headers.get("Upload-Concat", "").strip()
        parts: tuple[str, ...] = ()
        if concat.startswith("final"):
            found = [_PART.search(url) for url in concat.partition(";")[2].split()]
            if not found or None in found:
                raise InvalidRequest(
                    "Upload-Concat: final; must name the parts' URLs", header="Upload-Concat"
                )
            parts = tuple(match[1] for match in found if match is not None)
        elif concat not in ("", "partial"):
            raise InvalidRequest("Upload-Concat: partial or final;URLs", header="Upload-Concat")
        unpack = metadata.get("unpack", "")
        if unpack not in ("", "tar"):
            raise InvalidRequest("only tar archives can be unpacked", header="Upload-Metadata")
        etag = metadata.get("if-match", "").strip('"')
        return UploadRequest(
            path=self._target(metadata),
            length=0 if parts else self.number("Upload-Length"),
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
    @operation("Read the progress of an upload (tus)", tag=_TAG)
    async def head(self, key: str, upload: str) -> None:
        self.check_version()
        found = await self.manager.folders.uploads.state(self.caller, key, upload)
        self.show(found)
        self.set_header("Upload-Length", str(found.length))
        if found.is_partial:
            self.set_header("Upload-Concat", "partial")

    async def begin(self, size: int | None) -> Any:
        self.check_version()
        if self.request.headers.get("Content-Type") != _PIECE_TYPE:
            raise InvalidRequest(f"the Content-Type must be {_PIECE_TYPE}", header="Content-Type")
        return await self.manager.folders.uploads.piece(
            self.caller,
            self.path_kwargs["key"],
            self.path_kwargs["upload"],
            self.number("Upload-Offset"),
            checksum_of(self.request.headers.get("Upload-Checksum", "")),
        )

    @operation(
        "Continue an upload (tus)",
        tag=_TAG,
        status=HTTPStatus.NO_CONTENT,
        is_file=True,
    )
    async def patch(self, key: str, upload: str) -> None:
        done = await self.commit()
        self.show(done)
        if done.entry is not None:
            self.set_header("ETag", f'"{done.entry.etag}"')

    @operation("Abort an upload (tus termination)", tag=_TAG, status=HTTPStatus.NO_CONTENT)
    async def delete(self, key: str, upload: str) -> None:
        self.check_version()
        await self.manager.folders.uploads.delete(self.caller, key, upload)


def metadata_of(header: str) -> dict[str, str]:
    """Return what ``Upload-Metadata`` says: names and values in base64.

    >>> metadata_of("path YS9i,empty")
    {'path': 'a/b', 'empty': ''}
    """
    found = {}
    for pair in filter(None, (part.strip() for part in header.split(","))):
        name, _, value = pair.partition(" ")
        try:
            found[name] = base64.b64decode(value.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            raise InvalidRequest(
                f"the value of {name!r} must be base64 of UTF-8", header="Upload-Metadata"
            ) from None
    return found


def checksum_of(header: str) -> tuple[str, bytes] | None:
    """Return algorithm and digest of ``Upload-Checksum``; None without one."""
    if not header:
        return None
    name, _, value = header.strip().partition(" ")
    if name not in CHECKSUMS:
        raise InvalidRequest(
            f"the checksum must be one of {', '.join(CHECKSUMS)}", header="Upload-Checksum"
        )
    try:
        return name, base64.b64decode(value.strip(), validate=True)
    except binascii.Error:
        raise InvalidRequest("the checksum must be base64", header="Upload-Checksum") from None


ROUTES: list[tuple[str, type[APIHandler]]] = [
    (r"/vfolders/(?P<key>[^/]+)/uploads", UploadsHandler),
    (r"/vfolders/(?P<key>[^/]+)/uploads/(?P<upload>[^/]+)", UploadHandler),
]
