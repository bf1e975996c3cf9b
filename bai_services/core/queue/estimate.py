"""When waiting sessions are likely to start: the line played forward over the ends to come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from ..placement import Placement, Placer
from ..policy import Scope, ScopeCaps, Usage, needs, violations
from ..resources import ResourceSlots
from .durations import NEVER, Durations, End, end_of, run_time
from .line import session_slots
from .model import (
    Backfill,
    Certainty,
    Estimate,
    GiveWay,
    Reservation,
    Running,
    Waiting,
    go_on,
)
from .reserve import later

# So many of a line are played one by one; those behind start at the pace that these show.
MOST_PLAYED = 1000
# So many times a session is tried, whatever the line is like: the cost of an estimate is bounded.
MOST_TRIES = 20_000
# Ends are looked at one by one at first, then in steps of a part of those already passed.
_FINE_STEPS = 32

_NOTHING = Estimate(None, Certainty.UNKNOWN)
_SURENESS = (Certainty.KNOWN, Certainty.ESTIMATED, Certainty.ROUGH, Certainty.UNKNOWN)


class _Event(NamedTuple):
    """Something that happens in the play: room that comes free, or a session whose time comes."""

    seconds: float
    number: int
    certainty: Certainty
    placements: tuple[Placement, ...]
    scopes: tuple[Scope, ...]
    slots: Mapping[str, int]


@dataclass(slots=True)
class _Lane:
    """Sessions of a line that are alike; the first of them is tried."""

    shape: int
    waiting: Waiting
    slots: ResourceSlots
    caps: list[ScopeCaps]
    places: list[int] = field(default_factory=list)  # in the line, the last one first


def estimate_starts(
    placer: Placer,
    running: Iterable[Running],
    now: datetime,
    line: Sequence[tuple[Waiting, int]],
    durations: Durations | Mapping[str, Sequence[int]],
    *,
    backfill: Backfill = Backfill.RESERVING,
    reservations: Iterable[Reservation] = (),
    caps: Mapping[Scope, ScopeCaps] | None = None,
    usage: Usage | None = None,
    give_way: GiveWay = go_on,
) -> list[Estimate]:
    """Return the estimated start of each session of a resource group's line, in its order.

    The line is played forward: what runs ends at its known or learned time, what
    starts ends likewise, each session starts when there is room and its quotas
    (``caps`` over ``usage``) allow it, and past others as ``backfill`` says. A
    reserved session starts at its reserved time. One that its own quota holds
    back stops nobody; it starts when enough of its scopes' sessions have ended. Behind the first
    ``MOST_PLAYED``, or where the play gets too long, the pace of the play goes on.
    An estimate is as sure as the least sure end before it.
    """
    learned = durations if isinstance(durations, Durations) else Durations(durations)
    play = _Play(placer, running, now, learned, caps or {}, usage or {}, give_way)
    fixed = {r.session_id: r for r in reservations}
    found: list[Estimate | None] = [None] * len(line)
    for place, (waiting, shape) in enumerate(line):
        give_way()
        kept = fixed.get(waiting.id)
        if kept is not None:
            found[place] = Estimate(kept.starts_at, kept.certainty)
            play.keep(kept, waiting)
        elif waiting.closed or waiting.unmet:
            found[place] = _NOTHING
        elif place < MOST_PLAYED:
            play.enter(place, waiting, shape)
    starts = play.run(is_strict=backfill is Backfill.OFF)
    for place, end in starts.items():
        found[place] = _estimate(now, end)
    pace = _Pace(starts)
    return [
        estimate or _estimate(now, pace.at(place) if play.is_open(place) else NEVER)
        for place, estimate in enumerate(found)
    ]


def _estimate(now: datetime, start: End) -> Estimate:
    if math.isinf(start.seconds):
        return _NOTHING
    return Estimate(later(now, start.seconds), start.certainty)


class _Play:
    """The line played forward on a fork of the placer."""

    def __init__(
        self,
        placer: Placer,
        running: Iterable[Running],
        now: datetime,
        durations: Durations,
        caps: Mapping[Scope, ScopeCaps],
        usage: Usage,
        give_way: GiveWay,
    ) -> None:
        self._placer = placer.fork()
        self._give_way = give_way
        self._now = now
        self._durations = durations
        self._caps = caps
        self._usage = {scope: dict(usage.get(scope, {})) for scope in caps}
        self._numbers = count()
        self._events: list[_Event] = []
        for r in running:
            give_way()
            end = end_of(r, now, durations)
            self._note(end, r.placements, r.scopes, r.slots)
        self._lanes: dict[tuple[object, ...], _Lane] = {}
        self._later: list[tuple[float, int, Waiting, int]] = []  # not before so many seconds
        self._tries = 0
        self._cut = False
        self._dead: set[int] = set()  # places in the line that nothing tells of

    def _note(
        self,
        end: End,
        placements: tuple[Placement, ...],
        scopes: tuple[Scope, ...],
        slots: Mapping[str, int],
    ) -> None:
        if not math.isinf(end.seconds):
            number = next(self._numbers)
            event = _Event(end.seconds, number, end.certainty, placements, scopes, slots)
            heappush(self._events, event)

    def enter(self, place: int, waiting: Waiting, shape: int) -> None:
        """Let a session take part, from its not-before on."""
        if waiting.not_before is not None and waiting.not_before > self._now:
            seconds = (waiting.not_before - self._now).total_seconds()
            self._later.append((seconds, place, waiting, shape))
            heapify(self._later)
        else:
            self._line_up(place, waiting, shape)

    def _line_up(self, place: int, waiting: Waiting, shape: int) -> None:
        key = (shape, waiting.scopes, waiting.seconds, waiting.kind)
        lane = self._lanes.get(key)
        if lane is None:
            slots = session_slots(waiting)
            caps = [self._caps[scope] for scope in waiting.scopes if scope in self._caps]
            lane = self._lanes[key] = _Lane(shape, waiting, slots, caps)
        lane.places.append(place)
        lane.places.sort(reverse=True)

    def keep(self, reservation: Reservation, waiting: Waiting) -> None:
        """Hold the place of a reservation from now until the reserved session would end."""
        slots = session_slots(waiting)
        self._placer.take(reservation.placements)
        self._count(waiting.scopes, slots, 1)
        if reservation.starts_at is not None:
            seconds = max(0.0, (reservation.starts_at - self._now).total_seconds())
            end = self._after(End(seconds, reservation.certainty), waiting)
            self._note(end, reservation.placements, waiting.scopes, slots)

    def run(self, *, is_strict: bool) -> dict[int, End]:
        """Return when each session starts that does, by its place in the line."""
        starts: dict[int, End] = {}
        start, passed = End(0.0, Certainty.KNOWN), 0
        while True:
            self._try(start, starts, is_strict)
            self._cut = self._tries >= MOST_TRIES
            if self._cut or not (self._lanes or self._later):
                break
            step = 1 + passed // _FINE_STEPS
            passed += step
            moved = self._advance(start, step)
            if moved is None:
                break
            start = moved
        if not self._cut:
            self._dead = {place for lane in self._lanes.values() for place in lane.places}
        return starts

    def _try(self, start: End, starts: dict[int, End], is_strict: bool) -> None:
        """Start whoever can at this time, in the order of the line."""
        heads = [(lane.places[-1], key) for key, lane in self._lanes.items()]
        heapify(heads)
        full: set[int] = set()
        while heads and self._tries < MOST_TRIES:
            self._give_way()
            place, key = heappop(heads)
            lane = self._lanes[key]
            self._tries += 1
            if lane.shape in full or violations(lane.caps, lane.slots, self._usage):
                continue
            placements = self._placer.place(lane.shape)
            if placements is None:
                full.add(lane.shape)
                # Strictly in order, nothing passes it, unless no end ever makes room for it.
                if is_strict and self._placer.can_ever(lane.shape):
                    return
                continue
            starts[place] = start
            self._count(lane.waiting.scopes, lane.slots, 1)
            end = self._after(start, lane.waiting)
            self._note(end, placements, lane.waiting.scopes, lane.slots)
            lane.places.pop()
            if lane.places:
                heappush(heads, (lane.places[-1], key))
            else:
                del self._lanes[key]

    def _advance(self, start: End, step: int) -> End | None:
        """Go on to the next ends and comings; None: nothing happens any more."""
        if not self._events and not self._later:
            return None
        seconds, sureness = start.seconds, _SURENESS.index(start.certainty)
        while step > 0 and (self._events or self._later):
            if self._later and (not self._events or self._later[0][0] <= self._events[0].seconds):
                seconds, place, waiting, shape = heappop(self._later)
                self._line_up(place, waiting, shape)
            else:
                event = heappop(self._events)
                seconds = event.seconds
                sureness = max(sureness, _SURENESS.index(event.certainty))
                self._placer.release(event.placements)
                self._count(event.scopes, event.slots, -1)
            step -= 1
        return End(max(start.seconds, seconds), _SURENESS[sureness])

    def _after(self, start: End, waiting: Waiting) -> End:
        """Return when a session ends that starts at a time."""
        length = run_time(waiting, self._durations)
        sureness = max(map(_SURENESS.index, (start.certainty, length.certainty)))
        return End(start.seconds + length.seconds, _SURENESS[sureness])

    def _count(self, scopes: Iterable[Scope], slots: Mapping[str, int], sign: int) -> None:
        for scope in scopes:
            used = self._usage.get(scope)
            if used is None:
                continue
            for slot, amount in needs(slots).items():
                used[slot] = used.get(slot, 0) + sign * amount

    def is_open(self, place: int) -> bool:
        """Return whether a session that did not start in the play may still do so later."""
        return place not in self._dead


class _Pace:
    """How fast a line moves, from those whose start was played."""

    def __init__(self, starts: Mapping[int, End]) -> None:
        waits = [(place, end) for place, end in starts.items() if end.seconds > 0]
        self._last = max((end.seconds for _, end in waits), default=0.0)
        self._each = self._last / len(waits) if waits else math.inf
        self._played = max(starts, default=-1)

    def at(self, place: int) -> End:
        """Return when a session starts that stands beyond those that were played."""
        if math.isinf(self._each):
            return NEVER
        beyond = max(1, place - self._played)
        return End(self._last + beyond * self._each, Certainty.ROUGH)
