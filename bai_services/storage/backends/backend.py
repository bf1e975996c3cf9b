"""Interface of a storage backend."""

from __future__ import annotations

import os
from pathlib import Path

from bai_services.system.descent import remove_tree

from ..base import Capability, CopyProgress
from ..trees import copy_tree

PRIVATE_MODE = 0o700


class Backend:
    """Operations on the directory of a quota scope.

    No path contains names given by users. Each method runs in a thread and may raise OSError from
    the file system. The methods of this class work on every mounted file system; a subclass
    overrides methods for which its file system has a better operation.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def capabilities(self) -> frozenset[Capability]:
        """Return the capabilities of the file system with its current mount options.

        Raises
        ------
        Unavailable
            If the root is not on a file system of this backend; the message states the remedy.
        """
        return frozenset()

    def create(self, scope: Path) -> None:
        """Create the directory of a scope; idempotent."""
        scope.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        scope.mkdir(mode=PRIVATE_MODE, exist_ok=True)

    def delete(self, scope: Path) -> None:
        """Delete a scope and its content; idempotent."""
        remove_tree(scope)

    def usage(self, scope: Path) -> int | None:
        """Return the bytes that a scope uses, None if the file system has no usage counter."""
        return None

    def quota(self, scope: Path) -> int | None:
        """Return the limit in bytes that the file system enforces on a scope, None if unlimited."""
        return None

    def set_quota(self, scope: Path, limit_bytes: int | None) -> None:
        """Set the limit that the file system enforces on a scope; None removes it.

        No effect if the file system does not support quotas.
        """

    def clone(self, source: Path, target: Path, progress: CopyProgress) -> None:
        """Copy a tree into an empty directory, sharing blocks if the file system supports it."""
        with _Directory(source) as from_directory, _Directory(target) as to_directory:
            copy_tree(from_directory.number, to_directory.number, progress)


class _Directory:
    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def __enter__(self) -> _Directory:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self.number)
