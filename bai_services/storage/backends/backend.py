"""What a storage host's file system must be able to do."""

from __future__ import annotations

import os
from pathlib import Path

from bai_services.descent import remove_tree

from ..base import Capability, Copying
from ..trees import copy_tree

PRIVATE_MODE = 0o700


class Backend:
    """The contract of a storage backend: six verbs about the directory of a quota scope.

    Each method gets a path that only the platform chooses, is called in a thread
    of its own, and raises OSError as the file system says it. What is here suits
    any mounted file system; a leaf overrides what its own does better.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def capabilities(self) -> frozenset[Capability]:
        """Return what this file system can do, as it is mounted now.

        Raises
        ------
        Unavailable
            If the root is no file system of this backend; the message says the remedy.
        """
        return frozenset()

    def create(self, scope: Path) -> None:
        """Make the directory of a scope; one that is there is fine."""
        scope.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        scope.mkdir(mode=PRIVATE_MODE, exist_ok=True)

    def delete(self, scope: Path) -> None:
        """Delete a scope with everything in it; one that is gone already is fine."""
        remove_tree(scope)

    def usage(self, scope: Path) -> int | None:
        """Return the bytes that a scope holds, by the file system's counter; None: it has none."""
        return None

    def quota(self, scope: Path) -> int | None:
        """Return the limit that the file system enforces on a scope; None: none."""
        return None

    def set_quota(self, scope: Path, limit_bytes: int | None) -> None:
        """Let the file system refuse more than that; None: nothing. Harmless where it cannot."""

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
