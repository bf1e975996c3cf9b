"""Open a path below a directory with openat2(2), so that no link or ``..`` leads out of it."""

from __future__ import annotations

import ctypes
import errno
import os

_SYS_OPENAT2 = 437  # the same on x86, ARM and RISC-V
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
# Maximum number of attempts: the kernel returns EAGAIN if a concurrent rename prevents a safe
# result.
_MAX_ATTEMPTS = 64

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


def open_beneath(root: int, path: str, flags: int) -> int:
    """Return a descriptor of ``path`` below the open directory ``root``; follow links inside it.

    Raises
    ------
    OSError
        EXDEV if a link or ``..`` leads out of ``root``, ENOSYS for a kernel before 5.6, EPERM in a
        sandbox that blocks the system call; and the errors of ``open``.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    number = errno.EAGAIN
    for _ in range(_MAX_ATTEMPTS):
        opened = _syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(root),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if opened >= 0:
            return int(opened)
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number))


def open_directory_beneath(source: str, path: str) -> int:
    """Return a descriptor (``O_PATH``) of a directory below the directory ``source``."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    root = os.open(source, flags | os.O_NOFOLLOW)
    try:
        return open_beneath(root, path, flags)
    finally:
        os.close(root)
