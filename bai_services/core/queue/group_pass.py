"""Steps 2 to 6 of a pass for one resource group: order, admit, place, reserve, backfill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from ..placement import Placement
from .line import Line, Shape
from .model import Backfill, Decision, GiveWay, Running, Waiting, go_on
from .order import Turns
from .reserve import Reserver

# Starts a session of a shape: counts it, and returns it as it runs.
Start = Callable[[Line, Shape, str, tuple[Placement, ...]], Running]


class GroupPass:
    """One pass over the line of one group.

    What fails once fails for the rest of the pass, because room and caps only
    shrink in it: so the cost is that of the shapes and of the sessions placed,
    however many wait.
    """

    def __init__(
        self,
        line: Line,
        start: Start,
        now: datetime,
        running: Callable[[], Iterable[Running]],
        durations: Mapping[str, Sequence[int]],
    ) -> None:
        self._line = line
        self._start = start
        self._now = now
        self._running = running
        self._durations = durations
        self._no_room: set[object] = set()
        self._room: dict[int, bool] = {}
        self._hopeless: set[int] = set()  # requests that no end of a session makes room for
        self._reserver: Reserver | None = None
        self._started: dict[Shape, int] = {}

    def run(self, waiting: Mapping[str, Waiting], give_way: GiveWay = go_on) -> list[Decision]:
        """Place all who may start now, in order; the line then holds those who still wait."""
        line, quotas = self._line, self._line.quotas
        line.stopped_by, line.is_passed = "", False
        decisions: list[Decision] = []
        # 2. Order.
        turns = Turns(line.shapes.values(), line.state.order, line.standing)
        if line.state.backfill is Backfill.AGGRESSIVE:
            turns.keep_only(self._has_room)
        while (shape := turns.peek()) is not None:
            give_way()
            # 3. Admit.
            if quotas.holds_back(shape.rows, shape.need):
                line.is_passed |= self._reserver is None
                turns.drop()
                continue
            # 4. Place; 6. backfill: the same, but around what is reserved.
            _, session_id = turns.session(shape)
            placements = self._place(shape, waiting[session_id])
            if placements is not None:
                decisions.append(Decision(session_id, placements))
                running = self._start(line, shape, session_id, placements)
                if self._reserver is not None:
                    self._reserver.started(running)
                self._started[shape] = self._started.get(shape, 0) + 1
                turns.advance()
                continue
            # 5. Reserve.
            reserver = self._reserver
            if self._ends_here(shape, waiting[session_id]):
                line.stopped_by = session_id
                break
            turns.drop()
            if self._reserver is not reserver:
                # From here on, those without room change nothing for anybody.
                turns.keep_only(self._has_room)
        line.started(self._started)
        kept = None if self._reserver is None else self._reserver.reservation
        line.reservations = () if kept is None else (kept,)
        line.has_spare = self._reserver is not None and self._reserver.has_spare()
        return decisions

    def _has_room(self, shape: Shape) -> bool:
        """Return whether there is room for a shape as things are; asked once per request."""
        has_room = self._room.get(shape.handle)
        if has_room is None:
            has_room = self._room[shape.handle] = self._line.placer.fits(shape.handle)
        return has_room

    def _place(self, shape: Shape, waiting: Waiting) -> tuple[Placement, ...] | None:
        if self._reserver is None:
            key: object = shape.handle
            if key in self._no_room:
                return None
            placements = self._line.placer.place(shape.handle)
        else:
            key = (shape.handle, waiting.seconds, waiting.kind)
            if key in self._no_room or shape.handle in self._no_room:
                return None
            placements = self._reserver.place(waiting, shape.handle)
        if placements is None:
            self._no_room.add(key)
        return placements

    def _ends_here(self, shape: Shape, waiting: Waiting) -> bool:
        """Return whether nothing may pass a session without room; reserve a place if that serves.

        One that the group could not hold even when empty stops and reserves nothing.
        """
        line = self._line
        backfill = line.state.backfill
        if backfill is Backfill.AGGRESSIVE or self._reserver is not None:
            return False
        if shape.handle in self._hopeless:
            return False
        if not line.placer.can_ever(shape.handle):
            self._hopeless.add(shape.handle)
            return False
        reserver = Reserver(line.placer, self._running(), self._now, self._durations)
        reservation = reserver.reserve(waiting, shape.handle)
        if reservation is None:
            # Its agents are closed or gone: the end of no session would help it.
            self._hopeless.add(shape.handle)
            return False
        if backfill is Backfill.OFF:
            return True
        self._reserver = reserver
        # Its counters are kept, too: those behind it may not use up what it needs to start.
        line.keep_for(shape)
        return False
