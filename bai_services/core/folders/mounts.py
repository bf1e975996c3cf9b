"""Mount paths of folders in a session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import InvalidRequest
from .vfolders import Permission, is_reserved

HOME = "/home/work"
# Top-level directories of the operating system: folders must be mounted elsewhere.
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
# Folders whose content works only at a fixed path.
OWN_PLACES: Mapping[str, str] = {".linuxbrew": "/home/linuxbrew/.linuxbrew"}
MAX_PATH = 255
MAX_PART = 64
MAX_MOUNTS = 32
MAX_SUBPATH = 1000

_PART = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class MountRequest:
    """A folder (id or name) to be mounted in a session.

    An empty ``path`` is the folder's default path; without ``permission`` the highest granted one
    applies; ``subpath`` is a directory in the folder that is mounted instead of the whole folder.
    """

    vfolder: str
    path: str = ""
    permission: Permission | None = None
    subpath: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedMount:
    """A folder, its path in the session and the session's permission."""

    vfolder_id: str
    vfolder: str
    host: str
    path: str
    permission: Permission
    # Not requested: its owner has it in every session.
    is_auto: bool = False
    subpath: str = ""

    def as_row(self) -> dict[str, Any]:
        """Return the value stored in the session's row."""
        row = {**asdict(self), "permission": str(self.permission)}
        for name in ("is_auto", "subpath"):
            if not row[name]:
                del row[name]
        return row


def mount_path(folder: str, asked: str) -> str:
    """Return the absolute path at which a folder is mounted.

    Default: ``/home/work/FOLDER``. A relative path is below ``/home/work``; an absolute one is used
    as given.

    Raises
    ------
    InvalidRequest
        If the path covers something that the session needs, is too long or
        contains invalid characters.
    """
    if not asked:
        return OWN_PLACES.get(folder, f"{HOME}/{folder}")
    parts = [part for part in asked.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refused(asked, "it must not contain '..'")
    if not asked.startswith("/"):
        if not parts:
            raise _refused(asked, f"{HOME} is the session's own; give a path below it")
        parts = ["home", "work", *parts]
    _check_place(asked, parts)
    for part in parts:
        if len(part) > MAX_PART or _PART.fullmatch(part) is None:
            raise _refused(
                asked, f"each part has 1 to {MAX_PART} letters of a-z and A-Z, digits, . _ and -"
            )
    path = "/" + "/".join(parts)
    if len(path) > MAX_PATH:
        raise _refused(asked, f"it has more than {MAX_PATH} characters")
    return path


def check_subpath(subpath: str) -> str:
    """Return the path of a directory inside a folder, with single ``/`` between its parts.

    Raises
    ------
    InvalidRequest
        If it is absolute, contains ``..`` or control characters, or is too long.
    """
    parts = [part for part in subpath.split("/") if part not in ("", ".")]
    shown = subpath if len(subpath) <= MAX_PATH else subpath[:MAX_PATH] + "…"
    reason = ""
    if subpath.startswith("/"):
        reason = "give it relative to the folder, without / in front"
    elif ".." in parts:
        reason = "it must not contain '..'"
    elif any(ord(c) < 32 or ord(c) == 127 for c in subpath):
        reason = "it must not contain control characters"
    elif len(subpath) > MAX_SUBPATH or any(len(part) > MAX_PATH for part in parts):
        reason = f"it has more than {MAX_SUBPATH} characters, or {MAX_PATH} between two /"
    if reason:
        raise InvalidRequest(f"{shown!r} is not a directory of a folder: {reason}", field="mounts")
    return "/".join(parts)


def _check_place(asked: str, parts: list[str]) -> None:
    if not parts or parts[0] in SYSTEM_DIRECTORIES:
        raise _refused(asked, "the system's own directories must not be covered; use another path")
    if parts[0] == "home" and len(parts) < 3:
        raise _refused(asked, f"{HOME} is the session's own; give a path below it")
    if parts[:2] == ["home", "work"] and is_reserved(parts[2]):
        raise _refused(asked, f"{parts[2]} is provided by the session itself")


def check_apart(folder_of_path: Iterable[tuple[str, str]]) -> None:
    """Check that no mounts overlap; ``folder_of_path`` maps mount paths to folder names.

    Raises
    ------
    InvalidRequest
        If two have one path, or one is inside another.
    """
    seen: dict[str, str] = {}
    for path, folder in folder_of_path:
        if path in seen:
            raise InvalidRequest(
                f"the folders {seen[path]} and {folder} would both be at {path}; "
                "give one of them another path",
                field="mounts",
                path=path,
            )
        seen[path] = folder
    _check_nesting(seen)


def _check_nesting(seen: Mapping[str, str]) -> None:
    for path, folder in seen.items():
        parents = path.split("/")
        for end in range(2, len(parents)):
            outer = "/".join(parents[:end])
            if outer in seen:
                raise InvalidRequest(
                    f"folder {folder} at {path} would lie inside folder {seen[outer]}, which is "
                    f"at {outer}; give one of them another path",
                    field="mounts",
                    path=path,
                )


def _refused(asked: str, reason: str) -> InvalidRequest:
    shown = asked if len(asked) <= MAX_PATH else asked[:MAX_PATH] + "…"
    return InvalidRequest(f"a folder cannot be mounted at {shown!r}: {reason}", field="mounts")
