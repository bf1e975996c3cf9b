"""Place the rows of a published GPU trace one by one, and measure the GPU allocation of a policy.

Prints one JSON object. The protocol is that of the authors of the trace: shuffle the rows, repeat
or remove rows until the load is reached, skip requests that do not fit, and never free resources.
The GPU allocation is the mean over the rows at which the load, in whole percent, is the final one.
The placement code is that of the manager's scheduling pass.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bai_services.core.errors import InvalidRequest
from bai_services.core.scheduling.placement import AgentState, Placer, Policy, Request
from bai_services.core.scheduling.placement.pricing.mix import (
    Mix,
    mean_runtime_seconds,
    request_kinds,
)
from bai_services.core.scheduling.placement.pricing.tables import Fleet, Tables, Variant, tables_of
from bai_services.core.scheduling.placement.pricing.variants import choose_tables
from bai_services.core.scheduling.replay.openb import read_nodes, read_pods
from bai_services.core.scheduling.replay.workload import ARCHITECTURE, GROUP, Job

MISSING = 6
FIRST_SEED = 42
POLICIES = ("random", "best-fit", "fgd", "priced", "pack", "spread", "round-robin")


class BadFile(Exception):
    """The error for an unusable file; the message names the file and the problem."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A row of the workload.

    ``gpu_milli`` is the demand per GPU and ``demand`` the total demand, both in thousandths of a
    GPU. ``seconds`` is the run time.
    """

    request: Request
    gpu_milli: int
    demand: int
    seconds: int


def read_files(nodes: Path, pods: Path) -> tuple[list[AgentState], list[Pod]]:
    """Return the nodes of a cluster, and the rows of a workload in the order of their names.

    Raises
    ------
    BadFile
        If a file has the wrong format, invalid rows or no rows.
    """
    try:
        with nodes.open(newline="", encoding="utf-8") as file:
            agents, invalid_rows = read_nodes(file, nodes.name)
        with pods.open(newline="", encoding="utf-8") as file:
            workload = read_pods(file, pods.name)
    except InvalidRequest as error:
        raise BadFile(str(error)) from None
    invalid_rows = [*invalid_rows, *workload.invalid_rows]
    if invalid_rows:
        raise BadFile("; ".join(str(row) for row in invalid_rows[:10]))
    if not agents or not workload.jobs:
        raise BadFile(f"{(pods if agents else nodes).name} has no rows")
    return agents, [_pod(job) for job in sorted(workload.jobs, key=lambda job: job.id)]


def _pod(job: Job) -> Pod:
    request = Request(job.slots, GROUP, ARCHITECTURE, device_models=job.device_models)
    share = job.slots.get("cuda.shares", 0)
    count = job.slots.get("cuda.device", 0)
    return Pod(request, 1000 if count else share, 1000 * count or share, job.seconds)


def mix_of(pods: Iterable[Pod]) -> Mix:
    """Return how often each kind of request occurs in a workload."""
    counts: Counter[Any] = Counter()
    for pod in pods:
        for kind, times in request_kinds(pod.request):
            counts[kind] += times
    return {kind: float(times) for kind, times in sorted(counts.items())}


def arrivals(pods: Sequence[Pod], capacity: int, load: float, seed: int) -> list[Pod]:
    """Return the rows in random order.

    Random rows are repeated or removed, so that the total demand is about ``load * capacity``.
    """
    rng = random.Random(seed)
    rows = list(pods)
    rng.shuffle(rows)
    target = load * capacity
    total = sum(pod.demand for pod in rows)
    while total > target:
        total -= rows.pop(rng.randrange(len(rows))).demand
    if total < target and sum(pod.demand for pod in rows) < target:
        while True:
            pod = pods[rng.randrange(len(pods))]
            if total + pod.gpu_milli > target:
                break
            rows.append(pod)
            total += pod.demand
    return rows


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one seed.

    ``trace_seconds`` is the time to place as many requests as the file has rows; if there are fewer
    requests, the time to place all of them. ``deciding_seconds`` excludes the preparation of
    the placer and of the requests. Allocations and ``fragmentation`` are percentages of all GPUs.
    """

    seconds: float
    deciding_seconds: float
    deciding_cpu_seconds: float
    trace_seconds: float
    rows: int
    placed: int
    allocation: float
    allocation_at_100: float | None
    fragmentation: float


def run(
    nodes: Sequence[AgentState],
    pods: Sequence[Pod],
    policy: Policy,
    tables: Tables,
    load: float,
    seed: int,
) -> Run:
    """Place the requests in the order that the seed determines, and return the result."""
    capacity = sum(len(node.devices) for node in nodes) * 1000
    rows = arrivals(pods, capacity, load, seed)
    ranked = list(nodes)
    random.Random(-seed).shuffle(ranked)
    placed = np.zeros(len(rows), np.bool_)
    # Equal requests are merged here, outside of the measured time: the queue merges them when
    # sessions are created, not during a pass.
    kinds: dict[Request, int] = {}
    of_row = [kinds.setdefault(pod.request, len(kinds)) for pod in rows]
    began = time.perf_counter()
    placer = Placer(ranked, policy, tables, seed=seed)
    shapes = [placer.prepare(request) for request in kinds]
    first, first_cpu = time.perf_counter(), time.process_time()
    of_file = 0.0
    for at, kind in enumerate(of_row):
        if at == len(pods):
            of_file = time.perf_counter() - began
        placed[at] = placer.place(shapes[kind]) is not None
    ended, ended_cpu = time.perf_counter(), time.process_time()
    demand = np.array([pod.demand for pod in rows])
    offered = np.rint(100 * np.cumsum(demand) / capacity)
    held = np.round(100 * np.cumsum(np.where(placed, demand, 0)) / capacity, 2)
    return Run(
        ended - began,
        ended - first,
        ended_cpu - first_cpu,
        of_file or ended - began,
        len(rows),
        int(placed.sum()),
        _at_load(offered, held, round(100 * load)),
        _at_load(offered, held, 100) if load >= 1 else None,
        100 * placer.fragmentation(),
    )


def _at_load(offered: Any, held: Any, percent: int) -> float:
    """Return the mean allocation, in percent of all GPUs, over the rows at one load."""
    chosen = offered == percent
    if not chosen.any():
        chosen = abs(offered - percent) <= max(1, abs(offered - percent).min())
    return round(float(held[chosen].mean()), 2)


def make_tables(
    pods: Sequence[Pod],
    nodes: Sequence[AgentState],
    policy: Policy,
    variant: str,
    *,
    have_ends: bool = False,
) -> Tables:
    """Return the policy's tables, trained with the mix of the workload but not with its order.

    The policies ``priced`` and ``fgd`` use the tables. For the other policies, the tables only
    measure fragmentation. With ``have_ends``, the run times of the requests also affect the choice
    of a variant of ``priced``.
    """
    mix = mix_of(pods)
    if policy == Policy.PRICED and variant == "chosen":
        seconds = [pod.seconds for pod in pods] if have_ends else []
        return choose_tables(
            mix, nodes, mean_runtime_seconds([pod.request for pod in pods], seconds)
        )
    chosen = Variant.ROWS if variant == "chosen" else Variant(variant)
    return tables_of(mix, Fleet.of(nodes), chosen)


def report(runs: Sequence[Run], tables: Tables, table_seconds: float) -> dict[str, Any]:
    def mean(name: str) -> float:
        return round(statistics.fmean(getattr(r, name) for r in runs), 4)

    rows = sum(r.rows for r in runs)
    answer: dict[str, Any] = {
        "seconds": mean("seconds"),
        "placed": mean("placed"),
        "gpu_allocation_percent": mean("allocation"),
        "fragmentation_percent": mean("fragmentation"),
        "us_per_decision": round(1e6 * sum(r.deciding_seconds for r in runs) / rows, 3),
        "cpu_us_per_decision": round(1e6 * sum(r.deciding_cpu_seconds for r in runs) / rows, 3),
        "trace_seconds": mean("trace_seconds"),
        "table_seconds": round(table_seconds, 3),
        "variant": tables.variant,
        "rows": round(rows / len(runs)),
        "seconds_by_seed": [round(r.seconds, 4) for r in runs],
        "placed_by_seed": [r.placed for r in runs],
        "gpu_allocation_percent_by_seed": [r.allocation for r in runs],
        "fragmentation_percent_by_seed": [round(r.fragmentation, 3) for r in runs],
    }
    if all(r.allocation_at_100 is not None for r in runs):
        answer["gpu_allocation_percent_at_100"] = mean("allocation_at_100")
    return answer


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.trace", description=__doc__)
    parser.add_argument("--nodes", type=Path, required=True, help="CSV of the cluster")
    parser.add_argument("--pods", type=Path, required=True, help="CSV of the workload")
    parser.add_argument("--policy", choices=POLICIES, required=True)
    parser.add_argument("--load", type=float, default=1.3, help="offered load; 1 fills all GPUs")
    parser.add_argument(
        "--seeds", type=int, default=10, help=f"number of runs; the first has seed {FIRST_SEED}"
    )
    parser.add_argument(
        "--variant",
        choices=["chosen", *Variant],
        default="chosen",
        help="variant of priced; chosen: the best one in a simulation of the mix",
    )
    args = parser.parse_args(arguments)
    for path in (args.nodes, args.pods):
        if not path.is_file():
            print(f"{path} not found: the trace is not part of this project", file=sys.stderr)
            return MISSING
    if args.seeds < 1 or not 0 < args.load <= 10:
        parser.error("--seeds must be at least 1, and --load above 0 and at most 10")
    policy = Policy(args.policy)
    try:
        nodes, pods = read_files(args.nodes, args.pods)
    except BadFile as error:
        print(error, file=sys.stderr)
        return 2
    began = time.perf_counter()
    tables = make_tables(pods, nodes, policy, args.variant)
    table_seconds = time.perf_counter() - began
    # Exclude the JIT compilation from the measurement: a manager compiles when it starts.
    warm = Placer(nodes[:1], policy, tables)
    warm.place(warm.prepare(pods[0].request))
    runs = [run(nodes, pods, policy, tables, args.load, FIRST_SEED + i) for i in range(args.seeds)]
    print(json.dumps(report(runs, tables, table_seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
