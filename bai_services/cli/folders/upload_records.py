"""Records of started uploads, so that a later command can resume them."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from .. import profile


class UploadRecords:
    """One small file per started upload, in the configuration folder."""

    def __init__(self, scope: str) -> None:
        """``scope`` is the URL of the folder; a key identifies an upload within it."""
        self._folder = profile.folder() / "uploads"
        self._scope = scope

    def get(self, key: str) -> str | None:
        """Return the path of the upload in the REST API, None if there is no record."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return self._path(key).read_text()
        return None

    def put(self, key: str, value: str) -> None:
        # Ignore the error: without a record, the upload works, but cannot be resumed.
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path(key).write_text(value)

    def delete(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(f"{self._scope} {key}".encode()).hexdigest()
