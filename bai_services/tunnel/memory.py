"""Memory of a process that carries much from one socket to another."""

from __future__ import annotations

import ctypes
from functools import cache

# Of <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# A piece on its way takes and frees some hundred kilobytes, a few times.
KEPT_BYTES = 16 * 1024 * 1024
LARGE_BYTES = 4 * 1024 * 1024


@cache
def keep_freed() -> None:
    """Let the C library keep a little of what is freed, where it is one that can be told.

    By itself it gives each piece's memory back to the kernel, which has to clear it for the next:
    0.9 s of processor time for a gigabyte that is copied twice, in place of 0.06.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    # Either one alone would switch off what the library does about the other by itself.
    mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
