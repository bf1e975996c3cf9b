"""Backends by name: built-in ones, and those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from bai_services.core.errors import Unavailable

from .backend import Backend
from .btrfs import BtrfsBackend
from .cephfs import CephfsBackend
from .local import LocalBackend
from .project_quota import Ext4Backend, XfsBackend

# Other packages register theirs in this group: NAME = "package.module:Class".
ENTRY_POINTS = "bai.storage"

BUILT_IN: Mapping[str, type[Backend]] = {
    "local": LocalBackend,
    "btrfs": BtrfsBackend,
    "xfs": XfsBackend,
    "ext4": Ext4Backend,
    "cephfs": CephfsBackend,
}


def find_backend(name: str) -> type[Backend]:
    """Return the backend of that name.

    Raises
    ------
    Unavailable
        If there is none, or the entry point of that name is not a backend.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    others = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in others:
        known = ", ".join(sorted({*BUILT_IN, *others}))
        raise Unavailable(f"there is no storage backend {name!r}; there is: {known}", backend=name)
    loaded = others[name].load()
    if not (isinstance(loaded, type) and issubclass(loaded, Backend)):
        raise Unavailable(f"the entry point {name!r} of {ENTRY_POINTS} is not a storage backend")
    return loaded
