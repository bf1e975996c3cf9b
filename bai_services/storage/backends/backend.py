"""Interface of a storage backend."""

from __future__ import annotations

import os
from pathlib import Path

from bai_services.descent import remove_tree

from ..base import Capability, Copying
from ..trees import copy_tree

PRIVATE_MODE = 0o700


class Backend:
    """Operations on the directory of a quota scope.

    Each method gets a path chosen by the platform alone, is called in a thread, and raises OSError
    from the file system. The implementations here suit any mounted file system; a subclass
    overrides what its file system does better.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def capabilities(self) -> frozenset[Capability]:
        """Return the capabilities of this file system as it is mounted now.

        Raises
        ------
        Unavailable
            If the root is not a file system of this backend; the message has the remedy.
        """
        return frozenset()

    def create(self, scope: Path) -> None:
        """Create the directory of a scope; idempotent."""
        scope.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        scope.mkdir(mode=PRIVATE_MODE, exist_ok=True)

    def delete(self, scope: Path) -> None:
        """Delete a scope with everything in it; idempotent."""
        remove_tree(scope)

    def usage(self, scope: Path) -> int | None:
        """Return the bytes used by a scope, from the file system's counter; None: it has none."""
        return None

    def quota(self, scope: Path) -> int | None:
        """Return the limit enforced by the file system on a scope; None: none."""
        return None

    def set_quota(self, scope: Path, limit_bytes: int | None) -> None:
        """Set the limit enforced by the file system; None: no limit. No effect where
        unsupported.
        """

    def clone(self, source: Path, target: Path, progress: Copying) -> None:
        """Copy a tree into an empty directory, sharing blocks where the file system can."""
        with _opened(source) as from_directory, _opened(target) as to_directory:
            copy_tree(from_directory.number, to_directory.number, progress)


class _opened:
    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def __enter__(self) -> _opened:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self.number)
