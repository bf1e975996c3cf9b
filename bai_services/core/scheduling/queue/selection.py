"""Select the shapes that a pass must examine.

Shapes that exceed a cap, and most shapes that do not fit, are skipped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit

from .model import Order, Party
from .quota import Ints, Quotas
from .shape import Shape

_ROWS = 64
# Columns of a shape: handle of its request, priority, lane, sort key of its first session, maximum
# run time. A lane is one party (see ``model.Party``) at one priority.
HANDLE, PRIORITY, LANE, SORT_KEY, MAX_SECONDS = range(5)
_WIDTH = 5
_GONE = -1
_NO_LIMIT = 2**62
# Maximum number of shapes selected at once for fifo and lifo; a pass rarely starts more.
MAX_SELECTED = 16
# Capacity state of a request. NO_CAPACITY: does not fit now. HAS_CAPACITY: fits now. NEVER_FITS:
# does not fit even if all running sessions end. A reservation adds two states. FITS_BESIDE: also
# fits outside the reserved placements. UNTRIED: fits only inside the reserved placements, and no
# attempt to move the reservation has been made. With a reservation, HAS_CAPACITY means: fits only
# inside the reserved placements, and the reservation could not be moved.
NO_CAPACITY, HAS_CAPACITY, NEVER_FITS, FITS_BESIDE, UNTRIED = 0, 1, -1, 2, 3


@njit(cache=True, nogil=True)
def _is_capped(n, rows, need, usage, limits):  # type: ignore[no-untyped-def]
    for at in range(rows.shape[1]):
        row = rows[n, at]
        if row < 0:
            break
        for slot in range(need.shape[1]):
            if need[n, slot] > 0 and usage[row, slot] + need[n, slot] > limits[row, slot]:
                return True
    return False


@njit(cache=True, nogil=True)
def _is_before(facts, one, other):  # type: ignore[no-untyped-def]
    """Return whether shape ``one`` precedes ``other`` by priority and sort key; True if ``other``
    is -1.
    """
    if other < 0 or facts[one, PRIORITY] > facts[other, PRIORITY]:
        return True
    is_equal = facts[one, PRIORITY] == facts[other, PRIORITY]
    return is_equal and facts[one, SORT_KEY] < facts[other, SORT_KEY]


@njit(cache=True, nogil=True)
def _select(facts, rows, need, usage, limits, states, longest, is_shared, first, chosen):  # type: ignore[no-untyped-def]
    """Write the indices of the selected shapes to ``chosen``; return (count, first capped shape).

    Before a reservation exists (``longest`` is -2): of the shapes without capacity, only the first
    of each lane is selected. If all parties share one order (``is_shared``), shapes after the first
    shape without capacity are skipped as well.

    When a reservation exists: shapes without capacity are skipped. Shapes that may run longer than
    ``longest`` are also skipped if they fit only inside reserved placements that can no longer move
    (HAS_CAPACITY). Of the untried shapes that may run longer than ``longest``, only the first of
    each lane and request is selected.

    ``first`` is a scratch array for these first shapes, by lane and request (before a reservation
    exists: by lane and 0).
    """
    count, capped, stop = 0, -1, -1
    first[:] = -1
    for n in range(facts.shape[0]):
        handle = facts[n, HANDLE]
        if handle < 0 or states[handle] == NEVER_FITS:
            continue
        state = states[handle]
        is_long = longest >= -1 and facts[n, MAX_SECONDS] > longest
        if longest >= -1 and (state == NO_CAPACITY or (is_long and state == HAS_CAPACITY)):
            continue
        if is_shared and longest < -1 and stop >= 0 and not _is_before(facts, n, stop):
            continue
        if _is_capped(n, rows, need, usage, limits):
            if _is_before(facts, n, capped):
                capped = n
        elif state == NO_CAPACITY or (is_long and state == UNTRIED):
            at = handle if longest >= -1 else 0
            if _is_before(facts, n, first[facts[n, LANE], at]):
                first[facts[n, LANE], at] = n
            if state == NO_CAPACITY and _is_before(facts, n, stop):
                stop = n
        else:
            chosen[count] = n
            count += 1
    for lane in range(first.shape[0]):
        for at in range(first.shape[1]):
            if first[lane, at] >= 0:
                chosen[count] = first[lane, at]
                count += 1
    return count, capped


@njit(cache=True, nogil=True)
def _drop_after_first_full(facts, states, chosen, count):  # type: ignore[no-untyped-def]
    """Drop the shapes after the first shape without capacity; return the number of remaining
    shapes.
    """
    last = -1
    for at in range(count):
        if states[facts[chosen[at], HANDLE]] == NO_CAPACITY and _is_before(facts, chosen[at], last):
            last = chosen[at]
    if last < 0:
        return count
    kept = 0
    for at in range(count):
        if chosen[at] == last or _is_before(facts, chosen[at], last):
            chosen[kept] = chosen[at]
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _sort_first(facts, chosen, count, limit):  # type: ignore[no-untyped-def]
    """Sort the first ``limit`` shapes to the front of ``chosen``."""
    kept = 0
    for at in range(count):
        one = chosen[at]
        if kept == limit and not _is_before(facts, one, chosen[limit - 1]):
            continue
        if kept < limit:
            kept += 1
        to = kept - 1
        while to > 0 and _is_before(facts, one, chosen[to - 1]):
            chosen[to] = chosen[to - 1]
            to -= 1
        chosen[to] = one


class Selected(NamedTuple):
    """Result of a selection."""

    shapes: list[Shape]  # in no particular order
    is_cut: bool  # more shapes follow
    capped: tuple[int, int] | None  # (priority, sort key) of the first shape over a cap


class _Scratch:
    """Scratch arrays, reused by every selection."""

    def __init__(self) -> None:
        self.states: Ints = np.empty(0, np.int64)  # by handle
        self.first: Ints = np.empty((0, 0), np.int64)  # by lane and handle
        self.chosen: Ints = np.empty(0, np.int64)

    def fit(self, handles: int, shapes: int, lanes: int, width: int) -> None:
        """Resize the arrays if necessary, and reset the states to ``NEVER_FITS``."""
        if len(self.states) != handles:
            self.states = np.empty(handles, np.int64)
        self.states.fill(NEVER_FITS)
        if len(self.chosen) != shapes:
            self.chosen = np.empty(shapes, np.int64)
        if self.first.shape != (lanes, width):
            self.first = np.empty((lanes, width), np.int64)


class Selection:
    """The shapes of one group as columns, updated between passes.

    Free quota and free capacity only shrink during a pass. A session that exceeds a cap or does not
    fit when the pass begins therefore cannot start in this pass, and is skipped. The exception is
    the first session of each lane that does not fit: it may get a reservation. For fifo and lifo,
    no later session may start before the reservation exists.
    """

    def __init__(self) -> None:
        self._facts: Ints = np.full((_ROWS, _WIDTH), _GONE, np.int64)
        self._rows: Ints = np.full((_ROWS, 1), -1, np.int64)
        self._need: Ints = np.zeros((_ROWS, 1), np.int64)
        self._shapes: list[Shape | None] = []
        self._free: list[int] = []
        self._lanes: dict[tuple[int, Party], int] = {}
        self._handles: dict[int, int] = {}  # number of shapes by handle of their request
        self._stale: set[int] = set()
        self._scratch = _Scratch()

    def copy(self) -> Selection:
        """Return an independent copy with the same shapes."""
        other = copy.copy(self)
        other._facts, other._rows, other._need = (
            self._facts.copy(),
            self._rows.copy(),
            self._need.copy(),
        )
        other._shapes, other._free = list(self._shapes), list(self._free)
        other._lanes, other._handles = dict(self._lanes), dict(self._handles)
        other._stale = set(self._stale)
        other._scratch = _Scratch()
        return other

    def replace(self, replacement: Callable[[Shape], Shape]) -> None:
        """Replace the shapes with equivalent ones."""
        self._shapes = [None if shape is None else replacement(shape) for shape in self._shapes]

    def add(self, shape: Shape) -> None:
        if self._free:
            n = self._free.pop()
            self._shapes[n] = shape
        else:
            n = len(self._shapes)
            self._shapes.append(shape)
        shape.column = n
        self._fit(n, len(shape.rows), len(shape.need))
        self._rows[n] = -1
        self._rows[n, : len(shape.rows)] = shape.rows
        self._need[n] = 0
        self._need[n, : len(shape.need)] = shape.need
        lane = self._lanes.setdefault((shape.priority, shape.party), len(self._lanes))
        seconds = shape.pending.max_run_seconds
        longest = _NO_LIMIT if seconds is None else seconds
        self._facts[n] = (shape.handle, shape.priority, lane, 0, longest)
        self._handles[shape.handle] = self._handles.get(shape.handle, 0) + 1
        self._stale.add(n)

    def _fit(self, n: int, rows: int, slots: int) -> None:
        """Grow the columns if necessary."""
        if n == len(self._facts):
            self._facts = np.concatenate([self._facts, np.full_like(self._facts, _GONE)])
            self._rows = np.concatenate([self._rows, np.full_like(self._rows, -1)])
            self._need = np.concatenate([self._need, np.zeros_like(self._need)])
        if rows > self._rows.shape[1]:
            self._rows = _wider(self._rows, rows, -1)
        if slots > self._need.shape[1]:
            self._need = _wider(self._need, slots, 0)

    def drop(self, shape: Shape) -> None:
        n = shape.column
        self._shapes[n] = None
        self._release_handle(shape.handle)
        self._facts[n] = _GONE
        self._free.append(n)
        self._stale.discard(n)

    def _release_handle(self, handle: int) -> None:
        self._handles[handle] -= 1
        if not self._handles[handle]:
            del self._handles[handle]

    def started(self, shape: Shape, key: int | None) -> None:
        """Record, during a pass, that the first session of a shape has started.

        ``key`` is the sort key of the shape's next session; None: no session remains.
        """
        if key is None:
            self._facts[shape.column, HANDLE] = _GONE
        else:
            self._facts[shape.column, SORT_KEY] = key

    def mark_changed(self, shape: Shape) -> None:
        """Record that the first session of a shape may have changed."""
        self._stale.add(shape.column)

    def mark_all_changed(self) -> None:
        """Record that the order or the handles of requests have changed."""
        self._handles = {}
        for n, shape in enumerate(self._shapes):
            if shape is not None:
                self._stale.add(n)
                self._facts[n, HANDLE] = shape.handle
                self._handles[shape.handle] = self._handles.get(shape.handle, 0) + 1

    def select(
        self,
        quotas: Quotas,
        capacity_states: Callable[[list[int]], list[int]],
        order: Order,
        longest: int | None = None,
    ) -> Selected:
        """Return the shapes that a pass must examine.

        ``capacity_states`` returns the capacity states of handles. ``longest`` is the longest run
        time in seconds with which a session certainly ends before the reservation starts; -1 if no
        run time is short enough. Without a reservation, ``longest`` is None; for aggressive
        backfill, it exceeds every run time.
        """
        self._refresh(order)
        handles = list(self._handles)
        highest, used = max(handles, default=0), len(self._shapes)
        width = 1 if longest is None else highest + 1
        scratch = self._scratch
        scratch.fit(highest + 1, len(self._facts), len(self._lanes), width)
        states, chosen = scratch.states, scratch.chosen
        states[handles] = capacity_states(handles)
        is_shared = order in (Order.FIFO, Order.LIFO)
        facts = self._facts[:used]
        count, capped = _select(
            facts,
            self._rows[:used],
            self._need[:used],
            *quotas.columns(),
            states,
            -2 if longest is None else longest,
            is_shared,
            scratch.first,
            chosen,
        )
        if longest is None and is_shared:
            count = _drop_after_first_full(facts, states, chosen, count)
        is_cut = is_shared and count > MAX_SELECTED
        if is_cut:
            _sort_first(facts, chosen, count, MAX_SELECTED)
            count = MAX_SELECTED
        shapes = [shape for n in chosen[:count].tolist() if (shape := self._shapes[n]) is not None]
        if capped < 0:
            return Selected(shapes, is_cut, None)
        first_capped = int(facts[capped, PRIORITY]), int(facts[capped, SORT_KEY])
        return Selected(shapes, is_cut, first_capped)

    def _refresh(self, order: Order) -> None:
        """Update the sort keys of changed shapes."""
        for n in self._stale:
            shape = self._shapes[n]
            assert shape is not None
            members = shape.members
            self._facts[n, SORT_KEY] = -members[-1][0] if order is Order.LIFO else members[0][0]
        self._stale.clear()


def _wider(columns: Ints, width: int, filler: int) -> Ints:
    more = np.full((len(columns), width - columns.shape[1]), filler, np.int64)
    return np.hstack([columns, more])
