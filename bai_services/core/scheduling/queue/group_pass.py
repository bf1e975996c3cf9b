"""Steps 2 to 6 of a pass for one resource group: order, admit, place, reserve, backfill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from ..placement import Placement
from .durations import Durations
from .group_queue import GroupQueue, Shape
from .model import Backfill, Decision, GiveWay, Running, Waiting, no_op
from .order import Turns
from .reserve import Reserver
from .selection import BESIDE, HOPELESS, NO_ROOM, ROOM, UNTRIED

# Longer than any session: with it, whatever there is room for may start.
_ANY_LENGTH = 2**62

# Starts a session of a shape: counts it, and returns it as it runs.
Start = Callable[[GroupQueue, Shape, str, tuple[Placement, ...]], Running]


class GroupPass:
    """One pass over the line of one group.

    What fails once fails for the rest of the pass, because room and caps only
    shrink in it: so the cost is that of the shapes and of the sessions placed,
    however many wait.
    """

    def __init__(
        self,
        group_queue: GroupQueue,
        start: Start,
        now: datetime,
        durations: Durations,
    ) -> None:
        self._group_queue = group_queue
        self._start = start
        self._now = now
        self._durations = durations
        self._no_room: set[int] = set()
        self._refused: set[int] = set()  # requests without room beside what is reserved
        self._full: set[int] = set()  # requests without room, as of a version of the placer
        self._room_version = -1
        self._said: dict[int, int] = {}  # what the last selection was told of requests
        self._moves = 0
        self._is_cut = False  # whether others come after the present turns
        self._hopeless: set[int] = set()  # requests that no end of a session makes room for
        self._reserver: Reserver | None = None
        self._capped: tuple[int, int] | None = None
        self._started: dict[Shape, int] = {}
        self._has_counted = False  # whether caps have shrunk since the present turns were selected

    def run(self, waiting: Mapping[str, Waiting], give_way: GiveWay = no_op) -> list[Decision]:
        """Place all who may start now, in order; the line then holds those who still wait."""
        group_queue, quotas = self._group_queue, self._group_queue.quotas
        group_queue.stopped_by, group_queue.is_passed = "", False
        decisions: list[Decision] = []
        # 2. Order.
        turns = self._turns()
        while (shape := turns.peek()) is not None or self._is_cut:
            give_way()
            if shape is None:
                turns = self._turns(turns)
                continue
            # 3. Admit.
            if self._has_counted and quotas.holds_back(shape.rows, shape.need):
                group_queue.is_passed |= self._reserver is None
                if self._said[shape.handle] in (NO_ROOM, UNTRIED):
                    # It may have stood for others, which were left out.
                    turns = self._turns(turns)
                else:
                    turns.drop()
                continue
            # 4. Place; 6. backfill: the same, but around what is reserved.
            _, session_id = turns.session(shape)
            placements = self._place(shape, waiting[session_id])
            if placements is not None:
                decisions.append(Decision(session_id, placements))
                running = self._start(group_queue, shape, session_id, placements)
                self._has_counted = True
                if self._reserver is not None:
                    self._reserver.started(running)
                self._started[shape] = self._started.get(shape, 0) + 1
                turns.advance()
                group_queue.selection.started(shape, turns.key_of(shape))
                if self._has_moved():
                    turns = self._turns(turns)
                continue
            # 5. Reserve.
            reserver, hopeless = self._reserver, len(self._hopeless)
            if self._ends_here(shape, waiting[session_id]):
                group_queue.stopped_by = session_id
                self._note_passed(turns, shape)
                break
            if self._reserver is not reserver:
                self._note_passed(turns, shape)
            if self._reserver is not reserver or len(self._hopeless) > hopeless:
                # Others matter now, which were left out for its sake.
                turns = self._turns(turns)
            else:
                turns.drop()
        group_queue.started(self._started)
        kept = None if self._reserver is None else self._reserver.reservation
        group_queue.reservations = () if kept is None else (kept,)
        group_queue.has_spare = False
        if self._reserver is not None:
            group_queue.has_spare = self._reserver.has_spare()
            self._reserver.done()
        return decisions

    def _turns(self, before: Turns | None = None) -> Turns:
        """Return the turns of all whom this pass can start or reserve a place for."""
        group_queue, reserver = self._group_queue, self._reserver
        longest: int | None = None
        if reserver is not None:
            longest = reserver.longest
        elif group_queue.state.backfill is Backfill.AGGRESSIVE:
            longest = _ANY_LENGTH
        selected = group_queue.selection.select(
            group_queue.quotas, self._rooms, group_queue.state.order, longest
        )
        self._is_cut, self._has_counted = selected.is_cut, False
        if reserver is None:
            self._capped = selected.capped
        return Turns(selected.shapes, group_queue.state.order, group_queue.standing, before=before)

    def _rooms(self, handles: list[int]) -> list[int]:
        """Return what the selection of shapes must know of requests, and remember it."""
        states = self._states(handles)
        self._said = dict(zip(handles, states, strict=True))
        return states

    def _states(self, handles: list[int]) -> list[int]:
        placer, reserver = self._group_queue.placer, self._reserver
        if self._room_version != placer.version:
            # What had no room in this pass has none now.
            asked = [n for n in handles if n not in self._full]
            fits = placer.fits_all(asked)
            self._full.update(n for n, has_room in zip(asked, fits, strict=True) if not has_room)
            self._room_version = placer.version
        without = self._full | self._no_room
        states = [ROOM] * len(handles)
        open_at: list[int] = []  # where there is room, and a second question
        for at, n in enumerate(handles):
            if n in without:
                states[at] = NO_ROOM
            elif reserver is not None and n not in self._refused:
                open_at.append(at)
        hopeless = {*self._hopeless, *placer.hopeless(without)}
        if hopeless:
            for at, n in enumerate(handles):
                if n in hopeless and n in without:
                    states[at] = HOPELESS
        if reserver is not None:
            other = UNTRIED if reserver.may_move else ROOM
            beside = reserver.fit_beside([handles[at] for at in open_at])
            for at, is_beside in zip(open_at, beside, strict=True):
                states[at] = BESIDE if is_beside else other
        return states

    def _has_moved(self) -> bool:
        """Return whether the reserved place is another one since this was last asked."""
        moves = 0 if self._reserver is None else self._reserver.moves
        self._moves, before = moves, self._moves
        if moves != before:
            self._refused.clear()
        return moves != before

    def _note_passed(self, turns: Turns, shape: Shape) -> None:
        """Note whether a session that its caps hold back stands before the one in need of room."""
        if self._capped is not None:
            priority, key = self._capped
            mine = turns.key_of(shape)
            assert mine is not None  # it is its turn
            self._group_queue.is_passed |= (-priority, key) < (-shape.priority, mine)

    def _place(self, shape: Shape, waiting: Waiting) -> tuple[Placement, ...] | None:
        handle, reserver = shape.handle, self._reserver
        if handle in self._no_room:
            return None
        if reserver is None or reserver.ends_before(waiting):
            placements = self._group_queue.placer.place(handle)
            if placements is None:
                self._no_room.add(handle)
            return placements
        # Room beside what is reserved is the same for all that outlast it.
        if handle in self._refused:
            return None
        placements = reserver.place(waiting, handle)
        if placements is None:
            self._refused.add(handle)
        return placements

    def _ends_here(self, shape: Shape, waiting: Waiting) -> bool:
        """Return whether nothing may pass a session without room; reserve a place if that serves.

        One that the group could not hold even when empty stops and reserves nothing.
        """
        group_queue = self._group_queue
        backfill = group_queue.state.backfill
        if backfill is Backfill.AGGRESSIVE or self._reserver is not None:
            return False
        if shape.handle in self._hopeless:
            return False
        if not group_queue.placer.can_ever(shape.handle):
            self._hopeless.add(shape.handle)
            return False
        reserver = Reserver(
            group_queue.placer,
            group_queue.releases(self._now, self._durations),
            self._now,
            self._durations,
        )
        reservation = reserver.reserve(waiting, shape.handle)
        if reservation is None:
            # Its agents are closed or gone: the end of no session would help it.
            self._hopeless.add(shape.handle)
            return False
        if backfill is Backfill.OFF:
            return True
        self._reserver = reserver
        # Its counters are kept, too: those behind it may not use up what it needs to start.
        group_queue.keep_for(shape)
        self._has_counted = True
        return False
