"""Cost of a pass while 10,000 sessions wait that cannot start.

`milliseconds` is a pass with no change since the last one. `after_a_change_milliseconds` is one
after another session was created that cannot start either: it examines every distinct request
again. `first_milliseconds` is the first pass over all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from datetime import timedelta

from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.placement import AgentState, Placement
from bai_services.core.scheduling.queue import Changes, Queue, RunningSession, run_pass

from .queue_world import GROUP, NOW, WorldSpec, world


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    spec = _parser().parse_args()
    snapshot = world(WorldSpec(spec.agents, spec.pending))
    snapshot = replace(
        snapshot,
        agents=[replace(a, used=dict(a.capacity)) for a in snapshot.agents],
        running=[_holder(a) for a in snapshot.agents],
    )
    run_pass(replace(snapshot, pending=snapshot.pending[:200]))  # compiles the hot loops
    queue = Queue(snapshot)
    first = _seconds(queue, 0)
    idle = [_seconds(queue, n) for n in range(1, spec.rounds)]
    changed = []
    for n in range(spec.rounds):
        queue.apply(Changes(pending=[replace(snapshot.pending[n], id=f"more-{n}", sequence=-n)]))
        changed.append(_seconds(queue, spec.rounds + n))
    figures = {
        "milliseconds": round(statistics.median(idle) * 1000, 4),
        "after_a_change_milliseconds": round(statistics.median(changed) * 1000, 2),
        "first_milliseconds": round(first * 1000, 1),
        "waiting": spec.pending,
        "agents": spec.agents,
    }
    print(json.dumps(figures, indent=2))
    return 0


def _holder(agent: AgentState) -> RunningSession:
    """Return a session that holds all of an agent for an hour."""
    slots = ResourceSlots(agent.capacity)
    placements = (Placement(agent.id, slots),)
    return RunningSession(
        f"on-{agent.id}", GROUP, (), placements, slots, NOW, NOW + timedelta(hours=1)
    )


def _seconds(queue: Queue, second: int) -> float:
    """Return the duration of a pass without decisions at that second."""
    now = queue.now + timedelta(seconds=second)
    start = time.perf_counter()
    result = queue.run(now)
    seconds = time.perf_counter() - start
    assert not result.decisions
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_pass", description=__doc__)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=50)
    return parser


if __name__ == "__main__":
    sys.exit(main())
