"""Decisions per second of a scheduling pass, with quotas, history and reasons.

The benchmark is one process without a database, so that only the pass is measured. Each round adds
all sessions to an empty cluster and measures the pass: order, caps of five scopes, agent and
devices, reservations, reasons. Most sessions start; the others get reasons. A decision is a session
that was placed or got its reasons. The queue's arrays are reused between rounds, as in the manager.
For `cold_decisions_per_second`, each round builds them from a snapshot.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from dataclasses import replace

from bai_services.core.scheduling.placement import Policy
from bai_services.core.scheduling.queue import Backfill, Changes, Order, Queue, Snapshot, run_pass

from .queue_world import WorldSpec, world

ROUNDS = 5
# Sizes of the additional measurements of `--all`: agents, pending sessions.
SMALL, LARGE = (200, 1_000), (10_000, 10_000)


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    spec = _parser().parse_args()
    order, policy, backfill = Order(spec.order), Policy(spec.policy), Backfill(spec.backfill)
    usual = WorldSpec(spec.agents, spec.pending, order, policy, backfill)
    figures = measure(usual, spec.rounds)
    if spec.all:
        small = measure(replace(usual, agents=SMALL[0], pending=SMALL[1]), spec.rounds)
        large = measure(replace(usual, agents=LARGE[0], pending=LARGE[1]), spec.rounds)
        per_decision = [f["warm_microseconds_per_decision"] for f in (figures, large)]
        figures |= {
            "decisions_per_second_200_agents": small["decisions_per_second"],
            "decisions_per_second_10000_agents": large["decisions_per_second"],
            "growth_to_10000_agents": round(per_decision[1] / per_decision[0], 2),
        }
    print(json.dumps(figures, indent=2))
    return 0


def measure(spec: WorldSpec, rounds: int) -> dict[str, float]:
    """Return the results for one size of cluster and queue: medians over the rounds."""
    snapshot = world(spec)
    run_pass(replace(snapshot, pending=snapshot.pending[:200]))  # JIT-compile the hot loops
    cold = [_cold(snapshot) for _ in range(min(3, rounds))]
    queue = Queue(snapshot)
    placed = len(queue.run(snapshot.now).decisions)
    warm = [_warm(queue, snapshot) for _ in range(rounds)]
    seconds = statistics.median(warm)
    return {
        "decisions_per_second": round(spec.pending / seconds),
        "placed_per_second": round(placed / seconds),
        "cold_decisions_per_second": round(spec.pending / statistics.median(cold)),
        "warm_microseconds_per_decision": round(seconds / spec.pending * 1e6, 2),
        "agents": spec.agents,
        "pending": spec.pending,
        "placed": placed,
        "pending_with_reasons": spec.pending - placed,
        "distinct_requests": len({w.request for w in snapshot.pending}),
    }


def _cold(snapshot: Snapshot) -> float:
    gc.collect()
    start = time.perf_counter()
    run_pass(snapshot)
    return time.perf_counter() - start


def _warm(queue: Queue, snapshot: Snapshot) -> float:
    """Add all sessions to the queue again; return the seconds of a pass with its reasons."""
    queue.apply(Changes(pending=snapshot.pending))
    gc.collect()
    start = time.perf_counter()
    result = queue.run(snapshot.now)
    len(result.changed)  # compute the reasons, which are lazy
    return time.perf_counter() - start


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedule", description=__doc__)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--order", choices=[str(o) for o in Order], default="fair-share")
    parser.add_argument("--policy", choices=[str(p) for p in Policy], default="priced")
    parser.add_argument("--backfill", choices=[str(b) for b in Backfill], default="reserving")
    parser.add_argument(
        "--all",
        action="store_true",
        help="also measure 200 agents x 1,000 sessions and 10,000 x 10,000",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
