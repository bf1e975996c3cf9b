"""Cost of a scheduling pass with 10,000 pending sessions, none of which can start.

`milliseconds` is the duration of a pass without changes since the previous one.
`first_milliseconds` is the duration of the first pass. `after_a_change_milliseconds` is the
duration of a pass after one more session that cannot start was added. That pass re-evaluates all
distinct requests.
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
        running=[_full_session(a) for a in snapshot.agents],
    )
    run_pass(replace(snapshot, pending=snapshot.pending[:200]))  # JIT-compile the hot loops
    queue = Queue(snapshot)
    first = _time_pass(queue, 0)
    idle = [_time_pass(queue, n) for n in range(1, spec.rounds)]
    changed = []
    for n in range(spec.rounds):
        queue.apply(Changes(pending=[replace(snapshot.pending[n], id=f"more-{n}", sequence=-n)]))
        changed.append(_time_pass(queue, spec.rounds + n))
    figures = {
        "milliseconds": round(statistics.median(idle) * 1000, 4),
        "after_a_change_milliseconds": round(statistics.median(changed) * 1000, 2),
        "first_milliseconds": round(first * 1000, 1),
        "waiting": spec.pending,
        "agents": spec.agents,
    }
    print(json.dumps(figures, indent=2))
    return 0


def _full_session(agent: AgentState) -> RunningSession:
    """Return a session that uses all resources of an agent for one hour."""
    slots = ResourceSlots(agent.capacity)
    placements = (Placement(agent.id, slots),)
    return RunningSession(
        f"on-{agent.id}", GROUP, (), placements, slots, NOW, NOW + timedelta(hours=1)
    )


def _time_pass(queue: Queue, offset_seconds: int) -> float:
    """Run a pass at ``NOW`` plus an offset, and return its duration in seconds.

    Assert that the pass makes no decision.
    """
    start = time.perf_counter()
    result = queue.run(NOW + timedelta(seconds=offset_seconds))
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
