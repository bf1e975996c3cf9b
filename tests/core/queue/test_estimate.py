"""Learned run times, and the line played forward."""

import random
import statistics
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.placement import Placer, Policy, Request
from bai_services.core.policy import Scope, ScopeCaps
from bai_services.core.queue import Backfill, Certainty, Reservation, Running, Waiting
from bai_services.core.queue.durations import WINDOW, Durations, run_time
from bai_services.core.queue.estimate import MOST_PLAYED, estimate_starts
from bai_services.core.replay.workload import ARCHITECTURE, GROUP
from bai_services.core.resources import ResourceSlots

from .jobs import agent
from .test_reserve import NOW, after, running

USER = Scope("user", "u")


@pytest.mark.parametrize(
    ("sentence", "samples", "elapsed", "expected"),
    [
        ("nothing is known of the kind", [], 0, None),
        ("half of the sessions run so long", [10, 20, 30, 40, 50], 0, (30, 5)),
        ("one sample is better than none", [70], 0, (70, 1)),
        ("those that have ended by now do not count", [10] * 90 + [60] * 10, 20, (60, 10)),
        ("too few ran as long: as long again", [10, 20, 30], 25, (50, 1)),
        ("none ran as long: as long again", [10, 20, 30], 100, (200, 0)),
    ],
)
def test_what_is_learned_of_a_kind(sentence, samples, elapsed, expected) -> None:
    assert Durations({"k": samples}).median("k", elapsed) == expected, sentence


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=2 * WINDOW))
def test_learning_online_is_learning_the_latest(samples) -> None:
    online = Durations()
    for seconds in samples:
        online.median("k")
        online.add("k", seconds)
    latest = samples[-WINDOW:]
    assert list(online["k"]) == latest
    assert online.median("k") == Durations({"k": latest}).median("k")
    assert online.median("k").seconds == statistics.median_high(latest)


def test_a_run_time_is_the_learned_one_but_no_more_than_allowed() -> None:
    learned = Durations({"k": [100] * 9})
    assert run_time(waiting(1, seconds=50, kind="k"), learned) == (50, Certainty.KNOWN)
    assert run_time(waiting(1, seconds=500, kind="k"), learned) == (100, Certainty.ESTIMATED)
    assert run_time(waiting(1, kind="other"), learned) == (float("inf"), Certainty.UNKNOWN)


def waiting(cores, **more):
    return Waiting(
        more.pop("id", "w"),
        1,
        Request(ResourceSlots({"cpu": cores * 1000}), GROUP, ARCHITECTURE),
        more.pop("scopes", ()),
        **more,
    )


def estimates(busy, line, cores=4, durations=None, **more):
    """Return seconds from now and certainty for a line on one agent, on which ``busy`` runs."""
    placer = Placer([agent("a", cores, 0)], Policy.BEST_FIT)
    held = []
    for n, (asked, ends, kind) in enumerate(busy):
        placements = placer.place(placer.prepare(waiting(asked).request))
        found = running(f"r{n}", placements, ends=ends, kind=kind, started=1)
        held.append(
            Running(
                found.id, GROUP, (USER,), placements, ResourceSlots({"cpu": asked * 1000}),
                found.started_at, found.ends_at, kind,
            )
        )  # fmt: skip
    shaped = [(w, placer.prepare(w.request)) for w in line]
    version = placer.version
    starts = estimate_starts(placer, held, NOW, shaped, durations or {}, **more)
    assert placer.version == version
    return [
        (None if e.starts_at is None else (e.starts_at - NOW).total_seconds(), str(e.certainty))
        for e in starts
    ]


@pytest.mark.parametrize(
    ("sentence", "busy", "line", "expected"),
    [
        ("there is room now", [], [waiting(4)], [(0, "known")]),
        ("room comes with a known end", [(4, 30, "")], [waiting(2)], [(30, "known")]),
        ("and with a learned one", [(4, None, "lab")], [waiting(2)], [(99, "estimated")]),
        ("nothing tells", [(4, None, "")], [waiting(2)], [(None, "unknown")]),
        (
            "each waits for those before it",
            [(4, 30, "")],
            [waiting(4, seconds=10), waiting(4, seconds=10), waiting(4)],
            [(30, "known"), (40, "known"), (50, "known")],
        ),
        (
            "a small one passes a large one",
            [(3, 30, "")],
            [waiting(4, seconds=10), waiting(1, seconds=5)],
            [(30, "known"), (0, "known")],
        ),
        (
            "not before its time",
            [],
            [waiting(4, not_before=after(70))],
            [(70, "known")],
        ),
        ("what it depends on has not ended", [], [waiting(1, unmet="x")], [(None, "unknown")]),
        (
            "one too large for the group holds up nobody",
            [],
            [waiting(9), waiting(1)],
            [(None, "unknown"), (0, "known")],
        ),
    ],
)
def test_when_a_line_starts(sentence, busy, line, expected) -> None:
    durations = {"lab": [100] * 20}
    assert estimates(busy, line, durations=durations) == expected, sentence


def test_without_backfill_a_small_one_waits_for_the_large_one_before_it() -> None:
    line = [waiting(4, seconds=10), waiting(1, seconds=5)]
    assert estimates([(3, 30, "")], line, backfill=Backfill.OFF) == [(30, "known"), (40, "known")]


def test_a_session_held_by_its_own_quota_starts_when_its_scope_has_room_and_stops_nobody() -> None:
    caps = {USER: ScopeCaps(USER, "u", {"cpu": 4000})}
    line = [waiting(2, scopes=(USER,)), waiting(2)]
    busy = [(2, 50, ""), (1, 20, "")]
    found = estimates(busy, line, cores=8, caps=caps, usage={USER: {"cpu": 3000, "sessions": 2}})
    assert found == [(20, "known"), (0, "known")]


def test_a_reserved_session_starts_at_its_time_and_its_place_is_kept() -> None:
    placer = Placer([agent("a", 4, 0)], Policy.BEST_FIT)
    shape = placer.prepare(waiting(4).request)
    places = placer.place(shape)
    held = running("r", places, ends=30)
    first, second = waiting(4, id="first", seconds=10), waiting(4, id="second")
    kept = Reservation("first", GROUP, after(35), Certainty.ESTIMATED, places)
    found = estimate_starts(
        placer, [held], NOW, [(first, shape), (second, shape)], {}, reservations=[kept]
    )
    assert [e.starts_at for e in found] == [after(35), after(45)]
    assert {e.certainty for e in found} == {Certainty.ESTIMATED}


def test_those_far_back_start_at_the_pace_of_those_before_them() -> None:
    line = [waiting(4, id=str(n), seconds=10) for n in range(MOST_PLAYED + 500)]
    found = estimates([], line)
    assert found[MOST_PLAYED - 1] == (10 * (MOST_PLAYED - 1), "known")
    for place in (MOST_PLAYED, MOST_PLAYED + 499):
        seconds, certainty = found[place]
        assert certainty == "rough"
        assert seconds == pytest.approx(10 * place, rel=0.01)


def test_estimates_never_run_backwards_within_equal_sessions() -> None:
    rng = random.Random(3)
    line = [
        waiting(rng.choice([1, 2, 4]), id=str(n), seconds=rng.choice([5, 9])) for n in range(80)
    ]
    busy = [(1, rng.randrange(60), "") for _ in range(4)]
    found = estimates(busy, line)
    by_shape = {}
    for one, (seconds, _) in zip(line, found, strict=True):
        by_shape.setdefault((one.request, one.seconds), []).append(seconds)
    for starts in by_shape.values():
        assert starts == sorted(starts)


def test_a_line_of_ten_thousand_costs_no_more_than_the_play() -> None:
    """The number of tries is bounded, however many wait and however different they are."""
    rng = random.Random(5)
    line = [
        waiting(rng.choice([1, 2, 3, 4]), id=str(n), seconds=rng.randrange(1, 10_000))
        for n in range(10_000)
    ]
    found = estimates([(4, 50, "")], line)
    assert len(found) == 10_000
    assert all(seconds is not None for seconds, _ in found)
    assert found[-1][1] == "rough"
    assert after(0) + timedelta(seconds=found[-1][0]) > after(50)
