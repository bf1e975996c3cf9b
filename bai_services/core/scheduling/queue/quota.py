"""Caps and usage of scopes as integer matrices: a row per scope and a column per slot."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...resources import ResourceSlots
from ..caps import SESSIONS, Scope, ScopeCaps, Usage, Violation, violation

Ints = NDArray[np.int64]

UNLIMITED = 2**62
# Initial number of rows of the matrices.
_ROWS = 64


@njit(cache=True, nogil=True)
def _exceeds_cap(usage, caps, rows, need):  # type: ignore[no-untyped-def]
    """Return whether ``need`` plus the usage would exceed a cap in any of ``rows``."""
    for row in rows:
        for slot in range(need.size):
            if need[slot] > 0 and usage[row, slot] + need[slot] > caps[row, slot]:
                return True
    return False


@njit(cache=True, nogil=True)
def _add_usage(usage, rows, need, sign):  # type: ignore[no-untyped-def]
    """Add ``need`` to the usage in each of ``rows``, or subtract it if ``sign`` is -1."""
    for row in rows:
        for slot in range(need.size):
            usage[row, slot] += sign * need[slot]


class Quotas:
    """Caps and usage counters of all scopes, across resource groups.

    ``rows`` and ``need`` are computed once per shape::

        rows, need = quotas.rows(scopes), quotas.need(slots)
        if not quotas.exceeds_cap(rows, need):
            quotas.allocate(rows, need)
    """

    def __init__(self, caps: Mapping[Scope, ScopeCaps], usage: Usage) -> None:
        self._row: dict[Scope, int] = {}
        self._slot: dict[str, int] = {SESSIONS: 0}
        self._slots: list[str] = [SESSIONS]
        self._caps: list[ScopeCaps | None] = []
        self._rows_of: dict[tuple[Scope, ...], Ints] = {}
        self._need_of: dict[ResourceSlots, Ints] = {}
        self._usage: Ints = np.zeros((_ROWS, 1), np.int64)
        self._limits: Ints = np.full((_ROWS, 1), UNLIMITED, np.int64)
        for slots in usage.values():
            self._add_slots(slots)
        for scope_caps in caps.values():
            self._add_slots(scope_caps.slots)
        for scope in {**caps, **usage}:
            self._add_scope(scope)
        for scope, scope_caps in caps.items():
            self.set_caps(scope, scope_caps)
        for scope, used in usage.items():
            self.set_usage(scope, used)

    def copy(self) -> Quotas:
        """Return an independent copy, which shares only immutable objects."""
        other = copy.copy(self)
        other._row, other._slot, other._slots = dict(self._row), dict(self._slot), [*self._slots]
        other._caps = list(self._caps)
        other._rows_of, other._need_of = dict(self._rows_of), dict(self._need_of)
        other._usage, other._limits = self._usage.copy(), self._limits.copy()
        return other

    def rows(self, scopes: tuple[Scope, ...]) -> Ints:
        """Return the row numbers of scopes; unknown scopes get new rows."""
        rows = self._rows_of.get(scopes)
        if rows is None:
            rows = np.array([self._add_scope(scope) for scope in scopes], np.int64)
            self._rows_of[scopes] = rows
        return rows

    def need(self, slots: ResourceSlots) -> Ints:
        """Return the amount that one session with ``slots`` adds to each column (1 in the first,
        which counts sessions).

        Columns that are added later are missing from the array and count as 0.
        """
        need = self._need_of.get(slots)
        if need is None:
            self._add_slots(slots)
            need = self._need_of[slots] = np.zeros(len(self._slots), np.int64)
            need[0] = 1
            for slot, amount in slots.items():
                need[self._slot[slot]] = amount
        return need

    def exceeds_cap(self, rows: Ints, need: Ints) -> bool:
        """Return whether any cap prevents one more session."""
        return bool(_exceeds_cap(self._usage, self._limits, rows, need))

    def columns(self) -> tuple[Ints, Ints]:
        """Return the matrices of usage and limits; valid until a row or column is added."""
        return self._usage, self._limits

    def is_capped(self, rows: Ints, need: Ints) -> bool:
        """Return whether any scope has a cap on a requested slot."""
        return bool((self._limits[rows][:, : len(need)][:, need > 0] < UNLIMITED).any())

    def allocate(self, rows: Ints, need: Ints) -> None:
        _add_usage(self._usage, rows, need, 1)

    def release(self, rows: Ints, need: Ints) -> None:
        _add_usage(self._usage, rows, need, -1)

    def checks(self, rows: Ints, need: Ints) -> list[tuple[bool, Violation]]:
        """Return a pair for each cap that applies to a session: whether the session stays within
        the cap, and the cap with the requested amount.

        The caps are in the order of ``rows``. Within a scope, they are sorted by slot name, with
        the cap on sessions last.
        """
        return [
            (asked + used <= limit, violation(caps, slot, asked, limit, used))
            for caps, slot, asked, limit, used in self._limited_slots(rows, need)
        ]

    def violations(self, rows: Ints, need: Ints) -> list[Violation]:
        """Return every cap that prevents one more session, in the order of ``checks``."""
        if not self.exceeds_cap(rows, need):
            return []
        return [
            violation(caps, slot, asked, limit, used)
            for caps, slot, asked, limit, used in self._limited_slots(rows, need)
            if asked + used > limit
        ]

    def left(self, rows: Ints, need: Ints) -> dict[str, int]:
        """Return, for each capped slot that a session requests, the smallest remaining amount in
        any of its scopes.
        """
        smallest: dict[str, int] = {}
        for _, slot, _, limit, used in self._limited_slots(rows, need):
            left = max(0, limit - used)
            smallest[slot] = min(smallest.get(slot, left), left)
        return smallest

    def all_caps(self) -> dict[Scope, ScopeCaps]:
        """Return the caps of every scope with caps."""
        return {scope: caps for scope, n in self._row.items() if (caps := self._caps[n])}

    def all_usage(self) -> dict[Scope, dict[str, int]]:
        """Return the usage of every scope."""
        return {scope: self.used(scope) for scope in self._row}

    def _limited_slots(self, rows: Ints, need: Ints) -> list[tuple[ScopeCaps, str, int, int, int]]:
        """Return (caps, slot, requested amount, limit, usage) for every slot with a limit."""
        limited = []
        for row in rows.tolist():
            caps = self._caps[row]
            if caps is None:
                continue
            # Sort the requested slots by name, and put the session count last.
            for slot in sorted(np.flatnonzero(need).tolist(), key=self._by_name):
                limit = int(self._limits[row, slot])
                if limit < UNLIMITED:
                    used = int(self._usage[row, slot])
                    limited.append((caps, self._slots[slot], int(need[slot]), limit, used))
        return limited

    def _by_name(self, slot: int) -> tuple[bool, str]:
        return slot == 0, self._slots[slot]

    def used(self, scope: Scope) -> dict[str, int]:
        """Return the usage of a scope."""
        row = self._row.get(scope)
        if row is None:
            return {}
        return {
            name: n for name, n in zip(self._slots, self._usage[row].tolist(), strict=True) if n
        }

    def set_caps(self, scope: Scope, caps: ScopeCaps | None) -> None:
        """Set the caps of a scope; None: no limits."""
        row = self._add_scope(scope)
        if caps is not None:
            self._add_slots(caps.slots)
        self._caps[row] = caps
        self._limits[row] = [self._limit(caps, slot) for slot in self._slots]

    def set_usage(self, scope: Scope, used: Mapping[str, int]) -> None:
        """Set the usage of a scope."""
        row = self._add_scope(scope)
        self._add_slots(used)
        self._usage[row] = [used.get(slot, 0) for slot in self._slots]

    def _add_scope(self, scope: Scope) -> int:
        row = self._row.get(scope)
        if row is None:
            row = self._row[scope] = len(self._row)
            self._caps.append(None)
            if row == len(self._usage):
                self._usage = np.vstack([self._usage, np.zeros_like(self._usage)])
                more = np.full_like(self._limits, UNLIMITED)
                self._limits = np.vstack([self._limits, more])
        return row

    def _add_slots(self, slots: Iterable[str]) -> None:
        new = [slot for slot in slots if slot not in self._slot]
        if not new:
            return
        for slot in new:
            self._slot[slot] = len(self._slots)
            self._slots.append(slot)
        height = len(self._usage)
        limits = np.full((height, len(new)), UNLIMITED, np.int64)
        for row, caps in enumerate(self._caps):
            limits[row] = [self._limit(caps, slot) for slot in new]
        self._usage = np.hstack([self._usage, np.zeros((height, len(new)), np.int64)])
        self._limits = np.hstack([self._limits, limits])

    @staticmethod
    def _limit(caps: ScopeCaps | None, slot: str) -> int:
        limit = None if caps is None else caps.limit(slot)
        return UNLIMITED if limit is None else min(limit, UNLIMITED)
