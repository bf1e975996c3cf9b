"""What the command remembers of uploads that were begun, so that they can be resumed."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from .. import profile


class Memory:
    """One small file for each upload that was begun, beside the profile."""

    def __init__(self, what: str) -> None:
        self._folder = profile.folder() / "uploads"
        self._what = what

    def get(self, key: str) -> str | None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return self._path(key).read_text()
        return None

    def put(self, key: str, value: str) -> None:
        # Not being able to remember costs a resume, not the upload.
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path(key).write_text(value)

    def forget(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / hashlib.sha256(f"{self._what} {key}".encode()).hexdigest()
