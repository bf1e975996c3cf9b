"""Measure the accuracy and speed of start estimates, and how much they slow a scheduling pass.

An estimate is exact if its session started in the estimated second. The estimates are compared with
replays, in which each session runs until its time limit and each pass builds a new queue. There are
two workloads, both on generated clusters with the backfill mode `reserving`. In `together`, all
sessions are submitted at time 0. In `arriving`, they arrive one after the other. All sessions have
the same priority.

`known_exact_percent` is the percentage of exact estimates among those labelled `known`.
`known_late_percent` is the percentage of `known` estimates whose session started later than
estimated. Both cover both workloads. `exact_percent` and `known_percent` are percentages of all
estimates of `together`: those that are exact, and those labelled `known`.

The speed is measured on a full cluster with `--waiting` pending sessions. `horizon_sessions` is the
number of starts simulated in one second of CPU time. `horizon_seconds` is the CPU time for all
pending sessions. Both are medians. `pass_delay_ms` is how much longer a pass takes while estimates
run continuously in another thread. This thread pauses during passes, as in the manager. The value
is the median difference between short series of passes with and without estimates.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.estimates.estimate import Budget, estimate_starts
from bai_services.core.scheduling.placement import AgentState, Policy
from bai_services.core.scheduling.queue import (
    Certainty,
    Changes,
    Estimate,
    GroupState,
    Order,
    PendingSession,
    Queue,
    RunningSession,
    Snapshot,
)
from bai_services.manager.scheduling.idle_scheduling import WorkGate

from .queue_world import GROUP, NOW, WorldSpec, world

UNLIMITED_BUDGET = Budget(sessions=10**6, seconds=600)
_PASSES_PER_SERIES = 10
_LIMITS = (600, 900, 1800, 3600, 5400, 7200, 14400, 28800)


class _EstimateAndStart(NamedTuple):
    """An estimate, and the real start of its session."""

    estimate: Estimate
    started_at: datetime


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    options = _parser().parse_args()
    rng = random.Random(11)
    together = [
        _replay_workload(rng, options.sessions, arrive=False) for _ in range(options.worlds)
    ]
    arriving = [_replay_workload(rng, options.sessions, arrive=True) for _ in range(options.worlds)]
    all_together = [pair for pairs in together for pair in pairs]
    known = [pair for pairs in (*together, *arriving) for pair in pairs if _is_known(pair)]
    speed = _Speed(options.agents, options.waiting)
    figures = {
        "known_exact_percent": _percent(
            sum(_delay_seconds(pair) == 0 for pair in known), len(known)
        ),
        "known_late_percent": _percent(sum(_delay_seconds(pair) > 0 for pair in known), len(known)),
        "horizon_sessions": speed.horizon(),
        "horizon_seconds": speed.horizon_seconds(),
        "pass_delay_ms": speed.pass_delay_ms(options.passes),
        "exact_percent": _percent(
            sum(_delay_seconds(pair) == 0 for pair in all_together), len(all_together)
        ),
        "known_percent": _percent(sum(map(_is_known, all_together)), len(all_together)),
        "known_estimates": len(known),
        "estimates": sum(map(len, (*together, *arriving))),
        "waiting": options.waiting,
        "agents": options.agents,
    }
    print(json.dumps(figures, indent=2))
    return 0


def _percent(part: int, whole: int) -> float:
    return round(100 * part / max(1, whole), 2)


def _is_known(pair: _EstimateAndStart) -> bool:
    return pair.estimate.certainty is Certainty.KNOWN


def _delay_seconds(pair: _EstimateAndStart) -> float:
    """Return the number of seconds from the estimated start to the real start."""
    assert pair.estimate.starts_at is not None
    return (pair.started_at - pair.estimate.starts_at).total_seconds()


# ---- Accuracy ----


def _replay_workload(rng: random.Random, count: int, *, arrive: bool) -> list[_EstimateAndStart]:
    """Replay a generated workload; return the estimates of all passes with the real starts."""
    agents = [_agent(n, rng.choice((2, 4, 8))) for n in range(rng.randint(1, 3))]
    coming = _workload(rng, count, arrive=arrive)
    running: dict[str, RunningSession] = {}
    waiting: dict[str, PendingSession] = {}
    started: dict[str, datetime] = {}
    estimates: list[tuple[str, Estimate]] = []
    while coming or running:
        now = min([w.created_at for w in coming[:1]] + [_end_time(r) for r in running.values()])
        running = {key: r for key, r in running.items() if _end_time(r) > now}
        while coming and coming[0].created_at <= now:
            new = coming.pop(0)
            waiting[new.id] = new
        queue = Queue(_snapshot(now, agents, waiting, running))
        for decision in queue.run(now).decisions:
            del waiting[decision.session_id]
            started[decision.session_id] = now
            session = queue.running_session(decision.session_id)
            assert session is not None
            running[session.id] = session
        estimates += estimate_starts(queue, UNLIMITED_BUDGET).items()
    return [_EstimateAndStart(e, started[key]) for key, e in estimates if key in started]


def _end_time(running: RunningSession) -> datetime:
    assert running.ends_at is not None
    return running.ends_at


def _workload(rng: random.Random, count: int, *, arrive: bool) -> list[PendingSession]:
    at, sessions = NOW, []
    base = world(WorldSpec(1, 1)).pending[0]
    for n in range(count):
        at += timedelta(seconds=rng.choice((0, 5, 60)) if arrive else 0)
        slots = ResourceSlots({"cpu": 1000 * rng.choice((1, 1, 2, 4)), "mem": 2**30})
        request = replace(base.request, slots=slots)
        seconds = rng.choice((10, 30, 100, 300, 1000))
        sessions.append(
            PendingSession(f"s{n}", n, request, (), created_at=at, max_run_seconds=seconds)
        )
    return sessions


def _agent(n: int, cores: int) -> AgentState:
    capacity = {"cpu": 1000 * cores, "mem": 64 * 2**30}
    return AgentState(f"a{n}", GROUP, "x86_64", "docker", capacity)


def _snapshot(
    now: datetime,
    agents: list[AgentState],
    waiting: dict[str, PendingSession],
    running: dict[str, RunningSession],
) -> Snapshot:
    used: dict[str, dict[str, int]] = {agent.id: {} for agent in agents}
    for r in running.values():
        for placement in r.placements:
            mine = used[placement.agent_id]
            for slot, amount in placement.slots.items():
                mine[slot] = mine.get(slot, 0) + amount
    return Snapshot(
        list(waiting.values()),
        [replace(agent, used=used[agent.id]) for agent in agents],
        groups={GROUP: GroupState(GROUP, placement=Policy.BEST_FIT)},
        running=list(running.values()),
        now=now,
    )


# ---- Speed ----


class _Speed:
    """A full cluster with a long queue; the running sessions end one after the other."""

    def __init__(self, agents: int, waiting: int) -> None:
        rng = random.Random(3)
        base = world(WorldSpec(agents, 2 * waiting, order=Order.FIFO))
        base = replace(
            base, pending=[replace(w, max_run_seconds=rng.choice(_LIMITS)) for w in base.pending]
        )
        self.queue = Queue(base)
        self.queue.run(NOW)
        # Let the sessions end at different times, as if they had started at different times.
        spread = [
            replace(
                r,
                ends_at=_end_time(r) - timedelta(seconds=rng.randrange(int(left.total_seconds()))),
            )
            for r in self.queue.all_running()
            for left in [_end_time(r) - NOW]
        ]
        beyond = sorted(self.queue.all_pending(), reverse=True)[: -waiting or None]
        removed = beyond if self.queue.count_pending() > waiting else []
        self.queue.apply(Changes(running=spread, removed=removed))
        self.queue.run(NOW)

    def horizon(self) -> int:
        """Return the number of starts simulated in 1 s of CPU time (median of five runs)."""
        budget = Budget(sessions=10**6, seconds=1.0, clock=time.thread_time)
        counts = []
        simulated = (Certainty.KNOWN, Certainty.ESTIMATED)
        for _ in range(5):
            starts = estimate_starts(self.queue, budget).values()
            counts.append(sum(e.certainty in simulated for e in starts))
        return int(statistics.median(counts))

    def horizon_seconds(self) -> float:
        """Return the CPU seconds to simulate all starts (median of five runs)."""
        durations = []
        for _ in range(5):
            began = time.thread_time()
            estimate_starts(self.queue, UNLIMITED_BUDGET)
            durations.append(time.thread_time() - began)
        return round(statistics.median(durations), 2)

    def pass_delay_ms(self, passes: int) -> float:
        """Return how many milliseconds longer a pass takes while estimates run.

        The value is the median difference between a series with and a series without estimates.
        """
        gate = WorkGate()
        stop = threading.Event()
        fork = self.queue.fork()
        fork.pause_if_busy = gate.pause_if_busy

        def estimate() -> None:
            while not stop.is_set():
                estimate_starts(fork)

        differences = []
        for pair in range(max(1, passes // (2 * _PASSES_PER_SERIES))):
            medians: dict[bool, float] = {}
            # Alternate the order, because the load of the machine drifts.
            for with_estimates in (False, True) if pair % 2 else (True, False):
                stop.clear()
                thread = threading.Thread(target=estimate)
                if with_estimates:
                    thread.start()
                seconds = []
                for _ in range(_PASSES_PER_SERIES):
                    time.sleep(0.01)
                    seconds.append(self._pass(gate))
                stop.set()
                if with_estimates:
                    thread.join()
                medians[with_estimates] = statistics.median(seconds)
            differences.append(medians[True] - medians[False])
        return round(statistics.median(differences) * 1000, 3)

    def _pass(self, gate: WorkGate) -> float:
        """End the session that is due first, run a pass, and return the seconds that both took."""
        ends = {r.id: _end_time(r) for r in self.queue.all_running()}
        first = min(ends, key=lambda key: (ends[key], key))
        began = time.perf_counter()
        with gate:
            self.queue.apply(Changes(removed=[first]))
            self.queue.run(max(self.queue.now, ends[first]))
        return time.perf_counter() - began


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimate", description=__doc__)
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=25)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--waiting", type=int, default=2_000)
    parser.add_argument("--passes", type=int, default=200)
    return parser


if __name__ == "__main__":
    sys.exit(main())
