"""All arrays of a search in one array of addresses, the argument of compiled functions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from .columns import Columns, Costs, Floats, Ints, Memory
from .device_selection import inlined

# For each array: its address and up to four lengths.
_WIDTH = 5


class Bundle(NamedTuple):
    """Addresses of arrays, and references that keep the arrays alive as long as the addresses.

    Passing two dozen arrays one by one costs more than the search itself; passing this one is
    cheap. A bundle is invalid as soon as one of its arrays is replaced by another.
    """

    places: Ints  # [array, address and lengths]
    arrays: tuple[Ints | Floats, ...]


def bundle(columns: Columns, costs: Costs, memory: Memory, shapes: Ints) -> Bundle:
    """Return the bundle of all arrays that a search needs; ``unbundle`` restores them."""
    arrays = (*columns, *costs, *memory, shapes)
    places = np.zeros((len(arrays), _WIDTH), np.int64)
    for place, array in zip(places, arrays, strict=True):
        # Compiled code sees only addresses and lengths, so the memory layout must be contiguous.
        assert array.flags.c_contiguous and array.dtype in (np.int64, np.float64)
        place[0] = array.__array_interface__["data"][0]
        place[1 : 1 + array.ndim] = array.shape
    return Bundle(places, arrays)


def copied(one: Bundle, columns: Columns, memory: Memory, shapes: Ints) -> Bundle:
    """Return a bundle of arrays with the same sizes as those of ``one``, sharing its costs."""
    first, last = len(columns), len(one.arrays) - len(memory) - 1
    arrays = (*columns, *one.arrays[first:last], *memory, shapes)
    places = one.places.copy()
    for n, (new, old) in enumerate(zip(arrays, one.arrays, strict=True)):
        if new is not old:
            places[n, 0] = new.__array_interface__["data"][0]
    return Bundle(places, arrays)


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.inttoptr(arguments[0], cgutils.voidptr_t)


def _as_pointer(_: Any, address: Any) -> Any:
    """Convert an address to a pointer."""
    return types.voidptr(types.int64), _generate


_pointer: Any = intrinsic(_as_pointer)


@inlined
def _ints1(places, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(places[i, 0]), (places[i, 1],), np.int64)


@inlined
def _ints2(places, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(places[i, 0]), (places[i, 1], places[i, 2]), np.int64)


@inlined
def _ints3(places, i):  # type: ignore[no-untyped-def]
    lengths = (places[i, 1], places[i, 2], places[i, 3])
    return carray(_pointer(places[i, 0]), lengths, np.int64)


@inlined
def _floats1(places, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(places[i, 0]), (places[i, 1],), np.float64)


@inlined
def _floats2(places, i):  # type: ignore[no-untyped-def]
    return carray(_pointer(places[i, 0]), (places[i, 1], places[i, 2]), np.float64)


@inlined
def _floats4(places, i):  # type: ignore[no-untyped-def]
    lengths = (places[i, 1], places[i, 2], places[i, 3], places[i, 4])
    return carray(_pointer(places[i, 0]), lengths, np.float64)


@inlined
def unbundle(places):  # type: ignore[no-untyped-def]
    """Return columns, costs, memory and shapes, in the order in which ``bundle`` took them."""
    columns = Columns(
        _ints2(places, 0),
        _ints2(places, 1),
        _ints3(places, 2),
        _floats2(places, 3),
        _ints2(places, 4),
    )
    costs = Costs(
        _floats2(places, 5),
        _floats4(places, 6),
        _ints2(places, 7),
        _floats2(places, 8),
        _floats2(places, 9),
        _ints1(places, 10),
        _floats1(places, 11),
        _ints2(places, 12),
        _floats1(places, 13),
    )
    memory = Memory(
        _ints2(places, 14),
        _ints2(places, 15),
        _ints1(places, 16),
        _ints1(places, 17),
        _ints1(places, 18),
        _ints1(places, 19),
        _ints2(places, 20),
        _ints1(places, 21),
        _ints1(places, 22),
        _ints2(places, 23),
        _ints2(places, 24),
    )
    return columns, costs, memory, _ints2(places, 25)
