"""A file system that never responds, like a network share whose server is down.

It is a FUSE mount without a FUSE server: an access blocks until the FUSE connection ends.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed import ComponentMissing

_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def dead_mount(directory: Path, is_disconnected: bool = False) -> Iterator[None]:
    """Mount the file system on a directory for the ``with`` block.

    With ``is_disconnected``, its FUSE server has ended, so each access fails at once.

    At the end of the block, accesses that are still blocked fail.

    Raises
    ------
    ComponentMissing
        If FUSE is not available, or this process may not mount.
    """
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise ComponentMissing(f"/dev/fuse: {error.strerror}") from error
    try:
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
        arguments = (b"dead", os.fsencode(directory), b"fuse", ctypes.c_ulong(0), options.encode())
        if _libc.mount(*arguments):
            raise ComponentMissing(f"mount of FUSE: {os.strerror(ctypes.get_errno())}")
        if is_disconnected:
            os.close(device)
        try:
            yield
        finally:
            _libc.umount2(os.fsencode(directory), _MNT_DETACH)
    finally:
        if not is_disconnected:
            os.close(device)  # ends the FUSE connection, so blocked accesses fail
