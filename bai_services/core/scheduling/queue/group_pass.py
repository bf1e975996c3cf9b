"""Steps 2 to 6 of a pass for one resource group: order, admit, place, reserve, backfill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from ..placement import Designation, Placement
from ..preemption.plan import Preemption
from .durations import Durations
from .group_queue import GroupQueue
from .model import (
    Backfill,
    Decision,
    PauseIfBusy,
    PendingSession,
    Reservation,
    RunningSession,
    no_op,
)
from .order import Turns
from .preemption.group_plans import GroupPlans
from .reserve import Reserver
from .restrictions import restricted
from .selection import FITS_BESIDE, HAS_CAPACITY, NEVER_FITS, NO_CAPACITY, UNTRIED
from .shape import Shape

# A run time limit above every possible run time, so that every session that fits may start.
_NO_LIMIT = 2**62

# Function that starts a session of a shape: it charges the session to its scopes and returns the
# running session.
Start = Callable[[GroupQueue, Shape, str, tuple[Placement, ...]], RunningSession]


class GroupPass:
    """One pass over the queue of one group.

    Quota and capacity only shrink during a pass, so a request that does not fit is not tried again
    (``has_used_parts`` is the exception). A request that fits only inside the reserved placements
    is tried again after the reservation has moved. The cost therefore grows with the number of
    shapes and started sessions, not with the length of the queue.
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
        self._no_capacity: set[int] = set()
        # Requests that do not fit outside the reserved placements (see ``Reserver``).
        self._no_capacity_beside: set[int] = set()
        # Requests that do not fit at version ``_full_version`` of the placer.
        self._full: set[int] = set()
        self._full_version = -1
        # Capacity state by handle, as passed to the last selection.
        self._known_states: dict[int, int] = {}
        self._moves = 0
        # Whether the last selection was limited by ``MAX_SELECTED``, so that more shapes follow the
        # current turns.
        self._is_cut = False
        # Requests that would not fit even if all running sessions ended.
        self._never_fitting: set[int] = set()
        self._reserver: Reserver | None = None
        self._capped: tuple[int, int] | None = None
        self._plans = GroupPlans(group_queue, now)
        self.preemption: Preemption | None = None  # the new plan of this pass
        # Whether a member of a reservation has started on a reserved part. Sessions that did not
        # fit before may now fit beside the unused rest of that part.
        self.has_used_parts = False
        self._started: dict[Shape, int] = {}
        # Whether sessions have been charged since the current turns were selected.
        self._has_charged = False

    def run(
        self, pending: Mapping[str, PendingSession], pause_if_busy: PauseIfBusy = no_op
    ) -> list[Decision]:
        """Place all sessions that may start now, in order, and return the decisions."""
        group_queue, quotas = self._group_queue, self._group_queue.quotas
        group_queue.stopped_by, group_queue.has_capped_ahead = "", False
        decisions: list[Decision] = []
        group_queue.withhold_parts(self._now)

        def start_planned(shape: Shape, session_id: str, placements: tuple[Placement, ...]) -> None:
            decisions.append(Decision(session_id, placements))
            group_queue.end_promise(shape)
            self._withhold_after(self._start(group_queue, shape, session_id, placements))
            self._started[shape] = 1

        self._plans.start_planned(start_planned)
        # 2. Order.
        turns = self._turns()
        while (shape := turns.peek()) is not None or self._is_cut:
            pause_if_busy()
            if shape is None:
                turns = self._turns(turns)
                continue
            # 3. Admit.
            if self._has_charged and quotas.exceeds_cap(shape.rows, shape.need):
                group_queue.has_capped_ahead |= self._reserver is None
                if self._known_states[shape.handle] in (NO_CAPACITY, UNTRIED):
                    # The selection may have skipped other shapes because of this shape: select
                    # again.
                    turns = self._turns(turns)
                else:
                    turns.drop()
                continue
            # 4. Place. 6. Backfill: place outside the reserved placements.
            _, session_id = turns.session(shape)
            placements = self._place(shape, pending[session_id])
            if placements is not None:
                decisions.append(Decision(session_id, placements))
                running = self._start(group_queue, shape, session_id, placements)
                self._withhold_after(running)
                self._has_charged = True
                if self._reserver is not None:
                    self._reserver.started(running)
                self._started[shape] = self._started.get(shape, 0) + 1
                turns.advance()
                group_queue.selection.started(shape, turns.key_of(shape))
                if self._has_moved():
                    turns = self._turns(turns)
                continue
            # 5. Reserve.
            reserver, never_fitting_before = self._reserver, len(self._never_fitting)
            if self._reserve_or_end(shape, pending[session_id]):
                group_queue.stopped_by = session_id
                self._note_capped_ahead(turns, shape)
                break
            if self._reserver is not reserver:
                self._note_capped_ahead(turns, shape)
            if self._reserver is not reserver or len(self._never_fitting) > never_fitting_before:
                # The selection skipped shapes because of this shape: select again.
                turns = self._turns(turns)
            else:
                turns.drop()
        group_queue.started(self._started)
        reservation = None if self._reserver is None else self._reserver.reservation
        self.preemption = self._plans.new_plan(reservation)
        self._plans.release()
        group_queue.reservations = self._plans.reservations()
        if reservation is not None:
            group_queue.reservations += (reservation,)
        group_queue.has_spare_beside_reservation = False
        if self._reserver is not None:
            group_queue.has_spare_beside_reservation = self._reserver.has_spare_cpu()
            self._reserver.recycle_forks()
        return decisions

    def _withhold_after(self, started: RunningSession) -> None:
        parts = self._group_queue.parts
        self._group_queue.withhold_parts(self._now)
        self.has_used_parts |= parts.is_used and parts.admit(started)

    @property
    def dropped_plans(self) -> list[str]:
        """The sessions with a plan that no longer helps."""
        return self._plans.dropped

    def _turns(self, before: Turns | None = None) -> Turns:
        """Select the shapes that the pass must examine next (under fifo and lifo, at most
        ``MAX_SELECTED``), and return their turns.
        """
        group_queue, reserver = self._group_queue, self._reserver
        longest: int | None = None
        if reserver is not None:
            longest = reserver.longest
        elif group_queue.state.backfill is Backfill.AGGRESSIVE:
            longest = _NO_LIMIT
        selected = group_queue.selection.select(
            group_queue.quotas, self._capacity_states, group_queue.state.order, longest
        )
        self._is_cut, self._has_charged = selected.is_cut, False
        if reserver is None:
            self._capped = selected.capped
        return Turns(selected.shapes, group_queue.state.order, group_queue.standing, before=before)

    def _capacity_states(self, handles: list[int]) -> list[int]:
        """Return the capacity states of handles, and store them."""
        states = self._compute_states(handles)
        self._known_states = dict(zip(handles, states, strict=True))
        return states

    def _compute_states(self, handles: list[int]) -> list[int]:
        placer, reserver = self._group_queue.placer, self._reserver
        if self._full_version != placer.version:
            # A request that did not fit earlier in this pass does not fit now.
            to_check = [n for n in handles if n not in self._full]
            fits = placer.fits_each(to_check)
            self._full.update(
                n for n, is_fitting in zip(to_check, fits, strict=True) if not is_fitting
            )
            self._full_version = placer.version
        unfit = self._full | self._no_capacity
        states = [HAS_CAPACITY] * len(handles)
        # Indices of requests that fit, but possibly only inside the reserved placements.
        open_at: list[int] = []
        for at, n in enumerate(handles):
            if n in unfit:
                states[at] = NO_CAPACITY
            elif reserver is not None and n not in self._no_capacity_beside:
                open_at.append(at)
        never_fitting = {*self._never_fitting, *placer.never_fitting(unfit)}
        if never_fitting:
            for at, n in enumerate(handles):
                if n in never_fitting and n in unfit:
                    states[at] = NEVER_FITS
        if reserver is not None:
            other = UNTRIED if reserver.may_move else HAS_CAPACITY
            beside = reserver.fits_beside_reservation([handles[at] for at in open_at])
            for at, is_beside in zip(open_at, beside, strict=True):
                states[at] = FITS_BESIDE if is_beside else other
        return states

    def _has_moved(self) -> bool:
        """Return whether the reservation has moved since the last call. After a move, clear the
        record of requests that did not fit outside the reserved placements.
        """
        moves = 0 if self._reserver is None else self._reserver.moves
        self._moves, before = moves, self._moves
        if moves != before:
            self._no_capacity_beside.clear()
        return moves != before

    def _note_capped_ahead(self, turns: Turns, shape: Shape) -> None:
        """Record whether a session over a cap precedes the first session without free capacity."""
        if self._capped is not None:
            priority, capped_key = self._capped
            key = turns.key_of(shape)
            assert key is not None  # every shape with a turn has a key
            self._group_queue.has_capped_ahead |= (-priority, capped_key) < (-shape.priority, key)

    def _place(self, shape: Shape, pending: PendingSession) -> tuple[Placement, ...] | None:
        handle, reserver = shape.handle, self._reserver
        if handle in self._no_capacity:
            return None
        if reserver is None or reserver.ends_before(pending):
            placements = self._group_queue.placer.place(handle)
            if placements is None:
                self._no_capacity.add(handle)
            return placements
        # Record the failure for the request. All its sessions that may still run when the
        # reservation starts need the same capacity, so none of them fits.
        if handle in self._no_capacity_beside:
            return None
        placements = reserver.place(pending, handle)
        if placements is None:
            self._no_capacity_beside.add(handle)
        return placements

    def _reserve_or_end(self, shape: Shape, pending: PendingSession) -> bool:
        """Reserve placements for a session that does not fit now; return whether the pass must end.

        The pass ends if backfill is off. A session that would not fit even in an empty group gets
        no reservation and does not end the pass.
        """
        group_queue = self._group_queue
        backfill = group_queue.state.backfill
        if backfill is Backfill.AGGRESSIVE or self._reserver is not None:
            return False
        if shape.handle in self._never_fitting:
            return False
        if not group_queue.placer.fits_when_empty(shape.handle):
            self._never_fitting.add(shape.handle)
            return False
        reserver = Reserver(
            group_queue.placer,
            self._plans.releases(self._durations),
            self._now,
            self._durations,
            self._plans.carry_out,
        )
        reservation = reserver.reserve(pending, shape.handle)
        if reservation is None:
            # The session does not fit even after all running sessions have ended, for example
            # because agents are lost or not schedulable.
            self._never_fitting.add(shape.handle)
            return False
        if self._is_restricted_at_start(reservation, pending):
            reserver.forget_time()
        if backfill is Backfill.OFF:
            return True
        self._reserver = reserver
        # Also reserve quota: later sessions must not exhaust the quota that this session needs.
        group_queue.reserve_quota_for(shape)
        self._has_charged = True
        return False

    def _is_restricted_at_start(self, reservation: Reservation, pending: PendingSession) -> bool:
        """Return whether maintenance or advance reservations that do not restrict a session now
        would restrict it at its reserved start.
        """
        group_queue, at = self._group_queue, reservation.starts_at
        state = group_queue.state
        if at is None or not (state.held or state.maintenance):
            return False
        then = restricted(state, group_queue.agents.keys(), at, pending).request
        used = {placement.agent_id for placement in reservation.placements}
        is_withheld = then.designation is Designation.STRICT and not used <= set(
            then.designated_agents
        )
        return is_withheld or not set(then.beside) <= set(pending.request.beside)
