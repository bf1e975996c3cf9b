"""Reservations: reserved start and placements, overtaking sessions, and random queues."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import Mode, Placer, Policy, Request
from bai_services.core.scheduling.placement.pricing.tables import NO_TABLES
from bai_services.core.scheduling.queue import (
    Backfill,
    Certainty,
    GroupState,
    PendingSession,
    RunningSession,
)
from bai_services.core.scheduling.queue.reserve import Release, Reserver, count_releases_until_fit
from bai_services.core.scheduling.replay.simulate import EPOCH, replay
from bai_services.core.scheduling.replay.workload import ARCHITECTURE, GROUP, Job

from .factories import QUEUE_EXAMPLES
from .random_jobs import agent, random_agents, random_jobs

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Cluster:
    """A placer and its running sessions. ``reserver`` returns a reserver for this state."""

    def __init__(self, *agents, durations=None):
        self.placer = Placer(list(agents), Policy.BEST_FIT)
        self.running = []
        self.durations = durations or {}

    def run(self, name, slots, *, ends=None, started=0, kind=""):
        """Add a session that started ``started`` s ago and ends in ``ends`` s (None: unknown)."""
        placements = self.placer.place(self.shape(slots))
        assert placements is not None
        self.running.append(running(name, placements, ends=ends, started=started, kind=kind))

    def shape(self, slots, **more):
        return self.placer.prepare(request(slots, **more))

    def reserver(self):
        return Reserver(self.placer, self.running, NOW, self.durations)


def request(slots, **more):
    return Request(ResourceSlots(slots), GROUP, ARCHITECTURE, **more)


def running(name, placements, *, ends=None, started=0, kind=""):
    return RunningSession(
        name,
        GROUP,
        (),
        placements,
        ResourceSlots({}),
        NOW - timedelta(seconds=started),
        None if ends is None else NOW + timedelta(seconds=ends),
        kind,
    )


def pending(slots, *, seconds=None, **more):
    return PendingSession("w", 1, request(slots, **more), (), max_run_seconds=seconds)


def time_after(seconds):
    return NOW + timedelta(seconds=seconds)


def test_reservation_starts_at_the_first_sufficient_release() -> None:
    cluster = Cluster(agent("a", 8, 2), agent("b", 8, 2))
    for name, ends in (("s1", 50), ("s2", 20), ("s3", 90), ("s4", 10)):
        cluster.run(name, {"cpu": 1000, "cuda.device": 1}, ends=ends)
    shape = cluster.shape({"cuda.device": 2})
    reservation = cluster.reserver().reserve(pending({"cuda.device": 2}), shape)
    # s1 and s2 run on agent a, s3 and s4 on agent b. Agent a is free after 50 s, b after 90 s.
    assert reservation is not None
    assert reservation.starts_at == time_after(50)
    assert reservation.certainty is Certainty.KNOWN
    assert {place.agent_id for place in reservation.placements} == {"a"}


@pytest.mark.parametrize(
    ("case", "slots", "seconds", "may_start"),
    [
        ("ends before the reserved start", {"cuda.device": 1}, 50, True),
        ("ends after the reserved start", {"cuda.device": 1}, 51, False),
        ("unknown end", {"cuda.device": 1}, None, False),
        ("ends too late, on a reserved device", {"cuda.shares": 100}, 500, False),
        ("uses no reserved capacity", {"cpu": 4000}, None, True),
        ("uses reserved cores", {"cpu": 6000}, None, False),
    ],
)
def test_only_sessions_that_do_not_delay_the_reserved_session_may_overtake(
    case, slots, seconds, may_start
) -> None:
    cluster = Cluster(agent("a", 8, 2))
    cluster.run("s", {"cpu": 1000, "cuda.device": 1}, ends=50)
    shape = cluster.shape({"cpu": 3000, "cuda.device": 2})
    handle = cluster.shape(slots)
    reserver = cluster.reserver()
    assert reserver.reserve(pending({"cpu": 3000, "cuda.device": 2}), shape) is not None
    placements = reserver.place(pending(slots, seconds=seconds), handle)
    assert (placements is not None) is may_start, case


def test_share_fits_beside_a_reserved_share() -> None:
    cluster = Cluster(agent("a", 8, 1))
    cluster.run("s", {"cuda.shares": 700}, ends=50)
    shape, handle = cluster.shape({"cuda.shares": 500}), cluster.shape({"cuda.shares": 300})
    reserver = cluster.reserver()
    assert reserver.reserve(pending({"cuda.shares": 500}), shape) is not None
    # 300 thousandths of the device are free now. After the end of s, 500 thousandths are free
    # outside the reservation.
    placements = reserver.place(pending({"cuda.shares": 300}), handle)
    assert placements is not None
    reserver.started(running("t", placements))
    assert not cluster.placer.fits(handle)


def test_session_started_after_the_reservation_counts_until_its_end() -> None:
    cluster = Cluster(agent("a", 8, 2))
    cluster.run("s", {"cuda.device": 1, "cpu": 1000}, ends=50)
    two = cluster.shape({"cuda.shares": 400})
    shape = cluster.shape({"cuda.device": 1, "cpu": 8000})
    reserver = cluster.reserver()
    assert reserver.reserve(pending({"cuda.device": 1, "cpu": 8000}), shape) is not None
    # The reserved session needs one of the two devices. Two shares of 0.4 fit on the other device,
    # a third share does not.
    for name, expected in (("t1", True), ("t2", True), ("t3", False)):
        placements = reserver.place(pending({"cuda.shares": 400}), two)
        assert (placements is not None) is expected
        if placements is not None:
            reserver.started(running(name, placements))


def test_learned_run_time_gives_an_estimated_reservation_but_permits_no_overtaking() -> None:
    cluster = Cluster(agent("a", 8, 1), durations={"lab": [100] * 10, "quick": [1] * 50})
    cluster.run("s", {"cuda.device": 1, "cpu": 1000}, started=40, kind="lab")
    shape, handle = cluster.shape({"cuda.device": 1, "cpu": 8000}), cluster.shape({"cpu": 1000})
    reserver = cluster.reserver()
    reservation = reserver.reserve(pending({"cuda.device": 1, "cpu": 8000}), shape)
    assert reservation is not None
    assert (reservation.starts_at, reservation.certainty) == (time_after(60), Certainty.ESTIMATED)
    quick = PendingSession("q", 2, request({"cpu": 1000}), (), kind="quick")
    assert reserver.place(quick, handle) is None


def test_agent_of_the_longest_running_session_is_reserved_if_no_end_is_known() -> None:
    cluster = Cluster(agent("a", 8, 1), agent("b", 8, 1))
    cluster.run("young", {"cuda.device": 1}, started=10)
    cluster.run("old", {"cuda.device": 1}, started=500)
    shape, handle = cluster.shape({"cuda.device": 1, "cpu": 8000}), cluster.shape({"cpu": 1000})
    reserver = cluster.reserver()
    reservation = reserver.reserve(pending({"cuda.device": 1, "cpu": 8000}), shape)
    assert reservation is not None
    assert (reservation.starts_at, reservation.certainty) == (None, Certainty.UNKNOWN)
    assert reservation.placements[0].agent_id == "b"
    short = reserver.place(pending({"cpu": 1000}, seconds=1), handle)
    assert short is not None
    assert short[0].agent_id == "a"


def test_reservation_has_a_placement_for_every_kernel() -> None:
    cluster = Cluster(agent("a", 4, 0), agent("b", 4, 0))
    cluster.run("s1", {"cpu": 3000}, ends=10)
    cluster.run("s2", {"cpu": 3000}, ends=30)
    kernels = {"kernels": 2, "mode": Mode.MULTI_NODE}
    shape = cluster.shape({"cpu": 4000}, **kernels)
    reservation = cluster.reserver().reserve(pending({"cpu": 4000}, **kernels), shape)
    assert reservation is not None
    assert reservation.starts_at == time_after(30)
    assert {place.agent_id for place in reservation.placements} == {"a", "b"}


def test_no_reservation_for_a_session_that_never_fits_or_if_one_is_already_reserved() -> None:
    cluster = Cluster(agent("a", 4, 1))
    cluster.run("s", {"cpu": 4000}, ends=10)
    big, small = cluster.shape({"cpu": 5000}), cluster.shape({"cpu": 2000})
    reserver = cluster.reserver()
    assert reserver.reserve(pending({"cpu": 5000}), big) is None
    assert reserver.reserve(pending({"cpu": 2000}), small) is not None
    assert reserver.reserve(pending({"cpu": 2000}), small) is None


def test_count_releases_until_fit_is_minimal() -> None:
    for needed in range(1, 40):
        placer = Placer([agent("a", 40, 0)], Policy.BEST_FIT)
        one, many = (placer.prepare(request({"cpu": n * 1000})) for n in (1, needed))
        placed = [placer.place(one) for _ in range(40)]
        releases = [
            Release(float(n), NOW, str(n), placements or (), Certainty.KNOWN)
            for n, placements in enumerate(placed)
        ]
        assert count_releases_until_fit(placer, many, releases) == needed
        # Only the necessary releases have been applied to the placer.
        assert placer.agents()[0].free("cpu") == needed * 1000


def simulate(seed, backfill, *, is_exact, count=10):
    rng = random.Random(seed)
    agents = random_agents(rng)
    policy = rng.choice([Policy.BEST_FIT, Policy.SPREAD, Policy.PACK])
    work = random_jobs(rng, count, is_exact=is_exact)
    # Use empty price tables, because computing tables would take longer than the replay.
    return replay(
        work, agents, GroupState(GROUP, placement=policy, backfill=backfill, tables=NO_TABLES)
    )


def test_reserved_session_starts_at_the_promised_time_or_earlier() -> None:
    """The limit of each job is at least its run time."""
    promised = 0
    for seed in range(8 * QUEUE_EXAMPLES):
        replayed = simulate(seed, Backfill.RESERVING, is_exact=seed % 2 == 0)
        starts = {o.job.id: o.started for o in replayed.outcomes}
        for session_id, (_, reservation) in replayed.first_reservations.items():
            started = starts[session_id]
            assert started is not None, (seed, session_id)
            assert EPOCH + timedelta(seconds=started) <= reservation.starts_at, (seed, session_id)
            assert reservation.certainty is Certainty.KNOWN
            promised += 1
    assert promised > 6 * QUEUE_EXAMPLES


def test_reserved_session_starts_as_early_as_without_backfill() -> None:
    """Compare with the start that the session would have without the sessions that overtook it."""
    compared = 0
    for seed in range(2 * QUEUE_EXAMPLES):
        replayed = simulate(seed, Backfill.RESERVING, is_exact=True)
        positions = {o.job.id: n for n, o in enumerate(replayed.outcomes)}
        for session_id, (second, _) in replayed.first_reservations.items():
            mine = replayed.outcomes[positions[session_id]]
            before = [
                o
                for n, o in enumerate(replayed.outcomes)
                if o.started is not None
                and o.started <= second < o.started + o.job.seconds
                and not (o.started == second and n > positions[session_id])
            ]
            assert mine.started <= earliest_start(replayed.agents, before, mine.job, second), (
                seed,
                session_id,
            )
            compared += 1
    assert compared > QUEUE_EXAMPLES


def earliest_start(agents, before, job, second):
    """Return the first second at which a job fits if only the jobs in ``before`` run."""
    for at in sorted({second, *(o.started + o.job.seconds for o in before)}):
        placer = Placer(agents, Policy.BEST_FIT)
        for outcome in before:
            if outcome.started + outcome.job.seconds > at:
                placer.allocate(outcome.placements)
        if placer.fits(placer.prepare(request_of(job))):
            return at
    raise AssertionError("the job never fits")


def request_of(job: Job) -> Request:
    mode = job.mode if job.kernels > 1 else Mode.SINGLE_NODE
    return Request(job.slots, GROUP, ARCHITECTURE, kernels=job.kernels, mode=mode)


@pytest.mark.parametrize("backfill", list(Backfill))
def test_all_sessions_that_fit_an_empty_cluster_start_with_all_kernels(backfill) -> None:
    for seed in range(100):
        replayed = simulate(seed, backfill, is_exact=False)
        for outcome in replayed.outcomes:
            if outcome.started is None:
                empty = Placer(replayed.agents, Policy.BEST_FIT)
                assert not empty.fits(empty.prepare(request_of(outcome.job))), seed
                continue
            assert len(outcome.placements) == outcome.job.kernels
            if outcome.job.mode is Mode.SINGLE_NODE:
                assert len({place.agent_id for place in outcome.placements}) == 1


def test_large_session_starves_behind_short_ones_only_with_aggressive_backfill() -> None:
    """With backfill ``reserving``, a session that needs the whole cluster waits less than 150 s."""
    rng = random.Random(7)
    stream = [
        Job(f"s{n}", n, 20, ResourceSlots({"cpu": 1000}), limit=20 + rng.randrange(20))
        for n in range(400)
    ]
    big = Job("big", 50, 30, ResourceSlots({"cpu": 8000}), limit=30)
    for backfill, is_in_time in ((Backfill.RESERVING, True), (Backfill.AGGRESSIVE, False)):
        state = GroupState(GROUP, placement=Policy.BEST_FIT, backfill=backfill)
        replayed = replay([*stream, big], [agent("a", 8, 0)], state)
        waited = next(o.waited for o in replayed.outcomes if o.job.id == "big")
        # With ``reserving``, sessions that were created before the large session start first. A
        # later session may only overtake the large session if it ends before the reserved start.
        assert (waited < 150) is is_in_time, (backfill, waited)


def test_equal_queues_give_equal_decisions() -> None:
    for seed in range(20):
        one, other = (simulate(seed, Backfill.RESERVING, is_exact=False) for _ in range(2))
        assert one.outcomes == other.outcomes


def test_placements_do_not_exceed_agent_capacity() -> None:
    for seed in range(50):
        replayed = simulate(seed, Backfill.RESERVING, is_exact=False)
        for second in {o.started for o in replayed.outcomes if o.started is not None}:
            placer = Placer(replayed.agents, Policy.BEST_FIT)
            for o in replayed.outcomes:
                if o.started is not None and o.started <= second < o.started + o.job.seconds:
                    placer.allocate(o.placements)
            for state in placer.agents():
                assert all(state.used[slot] <= state.capacity[slot] for slot in ("cpu", "mem"))
                assert all(device.used <= device.capacity for device in state.devices)
