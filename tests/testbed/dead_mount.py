"""A file system whose server never answers, like a network share whose server is down.

It is a FUSE mount without a server: every access blocks until it is unmounted.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed import PartMissing

_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def dead_mount(place: Path) -> Iterator[None]:
    """Mount it over a directory while the block runs; the unmount ends all blocked accesses.

    Raises
    ------
    PartMissing
        If this machine has no FUSE, or this process may not mount.
    """
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise PartMissing(f"/dev/fuse: {error.strerror}") from error
    try:
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
        arguments = (b"dead", os.fsencode(place), b"fuse", ctypes.c_ulong(0), options.encode())
        if _libc.mount(*arguments):
            raise PartMissing(f"mount of FUSE: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            _libc.umount2(os.fsencode(place), _MNT_DETACH)
    finally:
        os.close(device)  # blocked accesses fail: the connection has ended
