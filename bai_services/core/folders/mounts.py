"""Mounts of folders in a session: requests, paths and their validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import InvalidRequest
from .vfolders import Permission, is_reserved

HOME = "/home/work"
# Top-level directories of the operating system; no folder can be mounted at or below them.
SYSTEM_DIRECTORIES = frozenset(
    [
        "bin",
        "boot",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "media",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "tmp",
        "usr",
        "var",
    ]
)
# Mount paths of folders whose files contain the mount path, so that they work at no other path.
FIXED_PATHS: Mapping[str, str] = {".linuxbrew": "/home/linuxbrew/.linuxbrew"}
MAX_PATH = 255
MAX_PART = 64
MAX_MOUNTS = 32
MAX_SUBPATH = 1000

_PART = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class MountRequest:
    """A folder, by id or name, that a session requests to mount.

    An empty ``path`` means the folder's default path. Without ``permission``, the session gets the
    lower of the folder's default permission and the permission of the session's owner. ``subpath``:
    a directory of the folder to mount instead of the whole folder.
    """

    vfolder: str
    path: str = ""
    permission: Permission | None = None
    subpath: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedMount:
    """A folder, its mount path in the session, and the session's permission."""

    vfolder_id: str
    vfolder: str
    host: str
    path: str
    permission: Permission
    # Whether the folder is mounted in every session of its owner without a request.
    is_auto: bool = False
    subpath: str = ""

    def as_row(self) -> dict[str, Any]:
        """Return the value for the session's database row."""
        row = {**asdict(self), "permission": str(self.permission)}
        for name in ("is_auto", "subpath"):
            if not row[name]:
                del row[name]
        return row


def mount_path(folder: str, requested: str) -> str:
    """Return the absolute path at which a folder is mounted.

    The default is the folder's path in ``FIXED_PATHS``, else ``/home/work/FOLDER``. A relative path
    is relative to ``/home/work``.

    Raises
    ------
    InvalidRequest
        If the path would hide files that the session needs, is too long or contains invalid
        characters.
    """
    if not requested:
        return FIXED_PATHS.get(folder, f"{HOME}/{folder}")
    parts = [part for part in requested.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _invalid_path(requested, "it must not contain '..'")
    if not requested.startswith("/"):
        if not parts:
            raise _invalid_path(requested, f"{HOME} is the session's home; use a path below it")
        parts = ["home", "work", *parts]
    _check_reserved(requested, parts)
    for part in parts:
        if len(part) > MAX_PART or _PART.fullmatch(part) is None:
            raise _invalid_path(
                requested,
                f"each name must have 1 to {MAX_PART} letters of a-z and A-Z, digits, . _ or -, "
                "and must not begin with -",
            )
    path = "/" + "/".join(parts)
    if len(path) > MAX_PATH:
        raise _invalid_path(requested, f"it has more than {MAX_PATH} characters")
    return path


def check_subpath(subpath: str) -> str:
    """Return the normalized path of a directory inside a folder.

    Raises
    ------
    InvalidRequest
        If the path is absolute, contains ``..`` or control characters, or is too long.
    """
    parts = [part for part in subpath.split("/") if part not in ("", ".")]
    shown = subpath if len(subpath) <= MAX_PATH else subpath[:MAX_PATH] + "…"
    reason = ""
    if subpath.startswith("/"):
        reason = "it must be relative to the folder, without a leading /"
    elif ".." in parts:
        reason = "it must not contain '..'"
    elif any(ord(c) < 32 or ord(c) == 127 for c in subpath):
        reason = "it must not contain control characters"
    elif len(subpath) > MAX_SUBPATH or any(len(part) > MAX_PATH for part in parts):
        reason = f"it has more than {MAX_SUBPATH} characters, or a name of more than {MAX_PATH}"
    if reason:
        raise InvalidRequest(f"{shown!r} is not a valid directory path: {reason}", field="mounts")
    return "/".join(parts)


def _check_reserved(requested: str, parts: list[str]) -> None:
    """Check that a mount path hides neither a system directory nor a path that the session uses."""
    if not parts or parts[0] in SYSTEM_DIRECTORIES:
        raise _invalid_path(requested, "system directories cannot be hidden; use another path")
    if parts[0] == "home" and len(parts) < 3:
        raise _invalid_path(requested, f"{HOME} is the session's home; use a path below it")
    if parts[:2] == ["home", "work"] and is_reserved(parts[2]):
        raise _invalid_path(requested, f"the session itself creates {parts[2]}; use another path")


def check_no_overlap(mounts: Iterable[tuple[str, str]]) -> None:
    """Check that no mounts overlap; ``mounts`` are pairs of mount path and folder name.

    Raises
    ------
    InvalidRequest
        If two mounts have the same path, or one mount is inside another.
    """
    seen: dict[str, str] = {}
    for path, folder in mounts:
        if path in seen:
            raise InvalidRequest(
                f"the folders {seen[path]} and {folder} would both be mounted at {path}; "
                "choose another path for one of them",
                field="mounts",
                path=path,
            )
        seen[path] = folder
    _check_nesting(seen)


def _check_nesting(folder_of_path: Mapping[str, str]) -> None:
    for path, folder in folder_of_path.items():
        parts = path.split("/")
        for end in range(2, len(parts)):
            outer = "/".join(parts[:end])
            if outer in folder_of_path:
                raise InvalidRequest(
                    f"folder {folder} at {path} would be inside folder {folder_of_path[outer]}, "
                    f"which is at {outer}; choose another path for one of them",
                    field="mounts",
                    path=path,
                )


def _invalid_path(requested: str, reason: str) -> InvalidRequest:
    shown = requested if len(requested) <= MAX_PATH else requested[:MAX_PATH] + "…"
    return InvalidRequest(f"a folder cannot be mounted at {shown!r}: {reason}", field="mounts")
