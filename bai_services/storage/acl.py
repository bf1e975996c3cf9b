"""POSIX access control lists for files shared by sessions with different uids and one group."""

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
    """Make a directory and its new entries writable by its group and by this process's user.

    The default ACL overrides the umask of the creating process. Return False if the file system
    does not support ACLs.
    """
    return _set(directory, _DEFAULT, 7) and _set(directory, _ACCESS, 7)


def share_file(file: int, is_executable: bool) -> bool:
    """Set on an existing file the ACL that ``share_directory`` gives to new files.

    Return False if the file system does not support ACLs.
    """
    return _set(file, _ACCESS, 7 if is_executable else 6)


def _set(descriptor: int, name: str, bits: int) -> bool:
    entries = (
        (_USER_OBJ, bits, _NOBODY),
        # Sessions of the process engine can run as the user of this process and must write to files
        # of other owners. Even if that user is root, sessions lack the capabilities of root, so the
        # user needs an entry.
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
