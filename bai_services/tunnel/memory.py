"""Memory allocator settings for a process that copies much data between sockets."""

from __future__ import annotations

import ctypes
from functools import cache

# Parameter numbers from <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Processing one frame allocates and frees several hundred kilobytes.
RETAINED_BYTES = 16 * 1024 * 1024
LARGE_BYTES = 4 * 1024 * 1024


@cache
def retain_freed_memory() -> None:
    """Make glibc keep up to 16 MiB of freed memory; no effect with another C library.

    By default, glibc returns the memory of each buffer to the kernel, which must clear the memory
    before the next use. With these settings, two copies of 1 GB took 0.06 s instead of 0.9 s
    (docs/benchmark-log.md).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    # Set both: setting one disables the library's automatic adjustment of the other.
    mallopt(_TRIM_THRESHOLD, RETAINED_BYTES)
    mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
