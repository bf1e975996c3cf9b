"""Steps 2 to 6 of a pass for one resource group: order, admit, place, reserve, backfill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from ..placement import Placement
from .durations import Durations
from .group_queue import GroupQueue
from .model import Backfill, Decision, GiveWay, Running, Waiting, no_op
from .order import Turns
from .reserve import Reserver
from .selection import BESIDE, HOPELESS, NO_ROOM, ROOM, UNTRIED
from .shape import Shape

# Longer than any session: with this limit, anything that fits may start.
_ANY_LENGTH = 2**62

# Starts a session of a shape: counts it in its scopes and returns it as running.
Start = Callable[[GroupQueue, Shape, str, tuple[Placement, ...]], Running]


class GroupPass:
    """One pass over the queue of one group.

    Room and caps only shrink during a pass, so what fails once fails for the rest of it. The cost
    therefore depends on the number of shapes and of placed sessions, not on the length of the
    queue.
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
        self._refused: set[int] = set()  # requests without room outside the reserved placement
        self._full: set[int] = set()  # requests without room at this version of the placer
        self._room_version = -1
        # room state of each request, as passed to the last selection
        self._room_states: dict[int, int] = {}
        self._moves = 0
        self._is_cut = False  # whether shapes follow that are not in the current turns
        self._hopeless: set[int] = set()  # requests that do not fit whatever ends
        self._reserver: Reserver | None = None
        self._capped: tuple[int, int] | None = None
        self._started: dict[Shape, int] = {}
        self._has_counted = False  # whether caps have shrunk since the current turns were selected

    def run(self, waiting: Mapping[str, Waiting], give_way: GiveWay = no_op) -> list[Decision]:
        """Place all sessions that may start now, in order; the rest remain in the queue."""
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
                if self._room_states[shape.handle] in (NO_ROOM, UNTRIED):
                    # It may have represented other shapes, which the selection left out.
                    turns = self._turns(turns)
                else:
                    turns.drop()
                continue
            # 4. Place; 6. backfill: the same, but around the reserved placement.
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
                # Shapes matter now that the selection left out because of this one.
                turns = self._turns(turns)
            else:
                turns.drop()
        group_queue.started(self._started)
        reservation = None if self._reserver is None else self._reserver.reservation
        group_queue.reservations = () if reservation is None else (reservation,)
        group_queue.has_spare = False
        if self._reserver is not None:
            group_queue.has_spare = self._reserver.has_spare()
            self._reserver.done()
        return decisions

    def _turns(self, before: Turns | None = None) -> Turns:
        """Return the turns of all sessions that this pass can start or reserve room for."""
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
        """Return the room state of requests for the selection of shapes, and remember it."""
        states = self._states(handles)
        self._room_states = dict(zip(handles, states, strict=True))
        return states

    def _states(self, handles: list[int]) -> list[int]:
        placer, reserver = self._group_queue.placer, self._reserver
        if self._room_version != placer.version:
            # A request that did not fit earlier in this pass does not fit now.
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
            beside = reserver.fits_beside_reservation([handles[at] for at in open_at])
            for at, is_beside in zip(open_at, beside, strict=True):
                states[at] = BESIDE if is_beside else other
        return states

    def _has_moved(self) -> bool:
        """Return whether the reserved placement has changed since the last call."""
        moves = 0 if self._reserver is None else self._reserver.moves
        self._moves, before = moves, self._moves
        if moves != before:
            self._refused.clear()
        return moves != before

    def _note_passed(self, turns: Turns, shape: Shape) -> None:
        """Note whether a session held back by caps precedes the one that needs room."""
        if self._capped is not None:
            priority, capped_key = self._capped
            key = turns.key_of(shape)
            assert key is not None  # it has a turn, so it has a key
            self._group_queue.is_passed |= (-priority, capped_key) < (-shape.priority, key)

    def _place(self, shape: Shape, waiting: Waiting) -> tuple[Placement, ...] | None:
        handle, reserver = shape.handle, self._reserver
        if handle in self._no_room:
            return None
        if reserver is None or reserver.ends_before(waiting):
            placements = self._group_queue.placer.place(handle)
            if placements is None:
                self._no_room.add(handle)
            return placements
        # All sessions that outlast the reservation see the same room.
        if handle in self._refused:
            return None
        placements = reserver.place(waiting, handle)
        if placements is None:
            self._refused.add(handle)
        return placements

    def _ends_here(self, shape: Shape, waiting: Waiting) -> bool:
        """Return whether the pass ends at a session without room; reserve room if backfill allows
        it.

        A session that the group could not hold even when empty neither ends the pass nor reserves.
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
            # Its agents are not schedulable or lost: it would not fit whatever ends.
            self._hopeless.add(shape.handle)
            return False
        if backfill is Backfill.OFF:
            return True
        self._reserver = reserver
        # Its quota is reserved, too: later sessions must not use up what it needs to start.
        group_queue.reserve_quota_for(shape)
        self._has_counted = True
        return False
