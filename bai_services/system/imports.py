"""Import many modules without garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collections() -> Iterator[None]:
    """Disable garbage collections in the block, which take a sixth of the CPU time of imports.

    Later collections skip the imported objects, which are never garbage.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
