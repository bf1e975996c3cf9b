"""Pack the arrays of a placement search into one array, the argument of compiled functions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from .columns import Columns, Costs, Floats, Ints, ScoreCache
from .device_selection import inlined

# Width of a row of ``Bundle.pointers``: the address of an array and up to four lengths.
_WIDTH = 5


class Bundle(NamedTuple):
    """Pointers to arrays, and references that keep the arrays alive.

    Passing 26 arrays to a compiled function takes 2.4 µs, longer than the search itself; passing
    ``pointers`` takes 0.2 µs. A bundle becomes invalid when one of its arrays is replaced.
    """

    pointers: Ints  # [array, _WIDTH]
    arrays: tuple[Ints | Floats, ...]


def bundle(columns: Columns, costs: Costs, cache: ScoreCache, shapes: Ints) -> Bundle:
    """Return a bundle of all arrays that a search needs; ``unbundle`` restores them."""
    arrays = (*columns, *costs, *cache, shapes)
    pointers = np.zeros((len(arrays), _WIDTH), np.int64)
    for pointer, array in zip(pointers, arrays, strict=True):
        pointer[0] = _address(array)
        pointer[1 : 1 + array.ndim] = array.shape
    return Bundle(pointers, arrays)


def rebound(base: Bundle, columns: Columns, cache: ScoreCache, shapes: Ints) -> Bundle:
    """Return a bundle of the given arrays and the costs of ``base``.

    Each array must have the same shape as the array of ``base`` that it replaces.
    """
    first, last = len(columns), len(base.arrays) - len(cache) - 1
    arrays = (*columns, *base.arrays[first:last], *cache, shapes)
    pointers = base.pointers.copy()
    for n, (new, old) in enumerate(zip(arrays, base.arrays, strict=True)):
        if new is not old:
            assert new.shape == old.shape
            pointers[n, 0] = _address(new)
    return Bundle(pointers, arrays)


def _address(array: NDArray[Any]) -> int:
    # Compiled code receives only addresses and lengths, so the memory layout must be contiguous.
    assert array.flags.c_contiguous and array.dtype in (np.int64, np.float64)
    address: int = array.__array_interface__["data"][0]
    return address


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.inttoptr(arguments[0], cgutils.voidptr_t)


def _as_pointer(_: Any, address: Any) -> Any:
    """Convert an address to a pointer."""
    return types.voidptr(types.int64), _generate


_pointer: Any = intrinsic(_as_pointer)


@inlined
def _ints1(pointers, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(pointers[i, 0]), (pointers[i, 1],), np.int64)


@inlined
def _ints2(pointers, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(pointers[i, 0]), (pointers[i, 1], pointers[i, 2]), np.int64)


@inlined
def _ints3(pointers, i):  # type: ignore[no-untyped-def]
    lengths = (pointers[i, 1], pointers[i, 2], pointers[i, 3])
    return carray(_pointer(pointers[i, 0]), lengths, np.int64)


@inlined
def _floats1(pointers, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(pointers[i, 0]), (pointers[i, 1],), np.float64)


@inlined
def _floats2(pointers, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(pointers[i, 0]), (pointers[i, 1], pointers[i, 2]), np.float64)


@inlined
def _floats4(pointers, i):  # type: ignore[no-untyped-def]
    lengths = (pointers[i, 1], pointers[i, 2], pointers[i, 3], pointers[i, 4])
    return carray(_pointer(pointers[i, 0]), lengths, np.float64)


@inlined
def unbundle(pointers):  # type: ignore[no-untyped-def]
    """Return the columns, costs, cache and shapes of a bundle.

    Each index is the position at which ``bundle`` packs the array.
    """
    columns = Columns(
        _ints2(pointers, 0),
        _ints2(pointers, 1),
        _ints3(pointers, 2),
        _floats2(pointers, 3),
        _ints2(pointers, 4),
    )
    costs = Costs(
        _floats2(pointers, 5),
        _floats4(pointers, 6),
        _ints2(pointers, 7),
        _floats2(pointers, 8),
        _floats2(pointers, 9),
        _ints1(pointers, 10),
        _floats1(pointers, 11),
        _ints2(pointers, 12),
        _floats1(pointers, 13),
    )
    cache = ScoreCache(
        _ints2(pointers, 14),
        _ints2(pointers, 15),
        _ints1(pointers, 16),
        _ints1(pointers, 17),
        _ints1(pointers, 18),
        _ints1(pointers, 19),
        _ints2(pointers, 20),
        _ints1(pointers, 21),
        _ints1(pointers, 22),
        _ints2(pointers, 23),
        _ints2(pointers, 24),
    )
    return columns, costs, cache, _ints2(pointers, 25)
