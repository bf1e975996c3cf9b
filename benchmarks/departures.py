"""Steady-state utilization and lost demand of a cluster under a placement policy.

Requests of a published trace arrive at random (Poisson process). They run as long as in the trace,
but at most ten times the median. A request that does not fit is lost. The placement code is that of
a scheduling pass. Prints one JSON object. For each policy and load, the object has the mean
percentage of allocated GPUs and the percentage of lost demand. Both cover the second half of the
requests and are means over the seeds.

With `--mix cpu-bound`, more requests are shares, and shares of 0.8 or more are left out. Then the
CPU cores are exhausted before the GPUs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import statistics
import sys
from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from bai_services.core.scheduling.placement import AgentState, Placement, Placer, Policy
from bai_services.core.scheduling.placement.pricing.tables import Variant

from .trace import FIRST_SEED, MISSING, BadFile, Pod, make_tables, read_files

POLICIES = ("priced", "fgd", "best-fit", "pack", "spread", "random")
# In the cpu-bound mix, this fraction of the GPU demand is shares.
SHARED_PART = 0.6
# The cpu-bound mix has no shares of this size or larger, in thousandths of a GPU.
LARGE = 800
# Maximum run time as a multiple of the median.
MAX_RUN_TIME_FACTOR = 10


def weights_of(pods: Sequence[Pod], mix: str) -> list[float]:
    """Return the relative frequency of each row in the mix `own` or `cpu-bound`."""
    if mix == "own":
        return [1.0] * len(pods)
    is_share = [0 < pod.gpu_milli < 1000 for pod in pods]
    shared = sum(p.demand for p, s in zip(pods, is_share, strict=True) if s and p.gpu_milli < LARGE)
    rest = sum(p.demand for p, s in zip(pods, is_share, strict=True) if not s)
    up = SHARED_PART * rest / ((1 - SHARED_PART) * shared)
    return [
        (up if pod.gpu_milli < LARGE else 0.0) if share else 1.0
        for pod, share in zip(pods, is_share, strict=True)
    ]


class SteadyState:
    """A simulated cluster, on which a request starts at its arrival or is lost."""

    def __init__(
        self, pods: Sequence[Pod], weights: Sequence[float], capacity: int, load: float
    ) -> None:
        self._pods = pods
        self._bounds = list(accumulate(weights))
        work = sum(w * p.demand * p.seconds for w, p in zip(weights, pods, strict=True))
        self._pause = work / self._bounds[-1] / (load * capacity)
        self._capacity = capacity

    def run(self, placer: Placer, arrivals: int, seed: int) -> tuple[float, float]:
        """Simulate the arrivals.

        Return the percentages (0 to 100) of allocated GPUs and of lost demand, both over the
        second half of the arrivals.
        """
        rng = random.Random(seed)
        ends: list[tuple[float, int, int, tuple[Placement, ...]]] = []
        now = held = area = 0.0
        asked = lost = 0.0
        start = 0.0
        for number in range(arrivals):
            if number == arrivals // 2:
                start, area, asked, lost = now, 0.0, 0.0, 0.0
            pod = self._pods[bisect(self._bounds, rng.random() * self._bounds[-1])]
            until = now + rng.expovariate(1 / self._pause)
            while ends and ends[0][0] <= until:
                end, _, demand, placements = heapq.heappop(ends)
                area, now, held = area + held * (end - now), end, held - demand
                placer.release(placements)
            area, now = area + held * (until - now), until
            found = placer.place(placer.prepare(pod.request))
            asked += pod.demand
            if found is None:
                lost += pod.demand
            else:
                held += pod.demand
                heapq.heappush(ends, (now + pod.seconds, number, pod.demand, found))
        return 100 * area / (now - start) / self._capacity, 100 * lost / asked


def weighted(pods: Sequence[Pod], weights: Sequence[float]) -> list[Pod]:
    """Return the training data of the policy's tables.

    Each row is repeated in proportion to its weight, at most 40 times.
    """
    scale = 4 / max(min(w for w in weights if w), 1e-9)
    return [p for p, w in zip(pods, weights, strict=True) for _ in range(min(40, round(w * scale)))]


def measure(
    nodes: Sequence[AgentState], pods: Sequence[Pod], args: argparse.Namespace
) -> dict[str, Any]:
    capacity = sum(len(node.devices) for node in nodes) * 1000
    weights = weights_of(pods, args.mix)
    # A few requests ran a thousand times as long as the others. With these run times, the
    # simulation would not reach a steady state.
    longest = int(MAX_RUN_TIME_FACTOR * statistics.median(pod.seconds for pod in pods))
    pods = [replace(pod, seconds=min(pod.seconds, longest)) for pod in pods]
    learned = weighted(pods, weights)
    answer: dict[str, Any] = {"mix": args.mix, "arrivals": args.arrivals}
    for name in args.policies:
        policy = Policy(name)
        tables = make_tables(learned, nodes, policy, args.variant, have_ends=True)
        per_load: dict[str, Any] = {}
        for load in args.loads:
            world = SteadyState(pods, weights, capacity, load)
            runs = [
                world.run(Placer(nodes, policy, tables), args.arrivals, FIRST_SEED + i)
                for i in range(args.seeds)
            ]
            per_load[f"{load:g}"] = {
                "gpu_held_percent": round(statistics.fmean(held for held, _ in runs), 2),
                "demand_lost_percent": round(statistics.fmean(lost for _, lost in runs), 2),
                "demand_lost_percent_by_seed": [round(lost, 2) for _, lost in runs],
            }
        answer[name] = per_load | (
            {"variant": tables.variant} if policy == Policy.PRICED and tables else {}
        )
    return answer


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.departures", description=__doc__)
    parser.add_argument("--nodes", type=Path, required=True, help="CSV of the cluster")
    parser.add_argument("--pods", type=Path, required=True, help="CSV of the workload")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES[:3])
    parser.add_argument("--loads", nargs="+", type=float, default=[0.9, 1.0, 1.1])
    parser.add_argument("--mix", choices=["own", "cpu-bound"], default="own")
    parser.add_argument("--arrivals", type=int, default=40_000)
    parser.add_argument(
        "--seeds", type=int, default=1, help=f"number of seeds, from {FIRST_SEED} on"
    )
    parser.add_argument("--variant", choices=["chosen", *Variant], default="chosen")
    args = parser.parse_args(arguments)
    if args.seeds < 1:
        parser.error("--seeds must be at least 1")
    for path in (args.nodes, args.pods):
        if not path.is_file():
            print(f"{path} not found: the trace is not part of this project", file=sys.stderr)
            return MISSING
    try:
        nodes, pods = read_files(args.nodes, args.pods)
    except BadFile as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(measure(nodes, pods, args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
