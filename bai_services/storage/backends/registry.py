"""Registry of storage backends by name: built-in backends and entry points of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from bai_services.core.errors import Unavailable

from .backend import Backend
from .btrfs import BtrfsBackend
from .cephfs import CephfsBackend
from .glusterfs import GlusterfsBackend
from .local import LocalBackend
from .project_quota import Ext4Backend, XfsBackend

# Entry point group in which other packages register backends: NAME = "package.module:Class".
ENTRY_POINTS = "bai.storage"

BUILT_IN: Mapping[str, type[Backend]] = {
    "local": LocalBackend,
    "btrfs": BtrfsBackend,
    "xfs": XfsBackend,
    "ext4": Ext4Backend,
    "cephfs": CephfsBackend,
    "glusterfs": GlusterfsBackend,
}


def find_backend(name: str) -> type[Backend]:
    """Return the backend of that name.

    Raises
    ------
    Unavailable
        If no backend has that name, or the entry point of that name cannot be loaded or is not a
        ``Backend`` subclass.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    others = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in others:
        known = ", ".join(sorted({*BUILT_IN, *others}))
        raise Unavailable(f"unknown storage backend {name!r}; available: {known}", backend=name)
    try:
        loaded = others[name].load()
    except Exception as error:
        # The module of another package may raise any exception.
        raise Unavailable(
            f"the entry point {name!r} of {ENTRY_POINTS} cannot be loaded: {error}", backend=name
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Backend)):
        raise Unavailable(f"the entry point {name!r} of {ENTRY_POINTS} is not a storage backend")
    return loaded
