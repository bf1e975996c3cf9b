"""Access lists of files that sessions with different uids share through one group."""

from __future__ import annotations

import errno
import os
import struct

_ACCESS = "system.posix_acl_access"
_DEFAULT = "system.posix_acl_default"
_VERSION = 2
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY = 0xFFFFFFFF


def share_directory(directory: int) -> bool:
    """Let whatever is made in the directory be writable by its group and by this process's user.

    The umask of whoever makes it no longer counts. Returns False where the
    file system knows no access lists.
    """
    return _set(directory, _DEFAULT, 7) and _set(directory, _ACCESS, 7)


def share_file(file: int, is_executable: bool) -> bool:
    """Do for one file what ``share_directory`` does for those made later."""
    return _set(file, _ACCESS, 7 if is_executable else 6)


def _set(descriptor: int, name: str, bits: int) -> bool:
    entries = (
        (_USER_OBJ, bits, _NOBODY),
        # The manager, and sessions of the process engine: its user, but without root's powers.
        (_USER, bits, os.geteuid()),
        (_GROUP_OBJ, bits, _NOBODY),
        (_MASK, bits, _NOBODY),
        (_OTHER, 0, _NOBODY),
    )
    value = struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *e) for e in entries)
    try:
        os.setxattr(descriptor, name, value)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP):
            return False
        raise
    return True
