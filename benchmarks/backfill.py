"""Bounded slowdown of a replay with the backfill mode `reserving`, compared with no backfill.

Prints one JSON object. Without ``--workload``, jobs are generated with a fixed seed by the model of
Lublin and Feitelson for parallel supercomputers:

- A quarter of the jobs use one processor. The logarithms of the other sizes follow a two-stage
  uniform distribution. Three quarters of these sizes are powers of two.
- The logarithm of the run time follows one of two gamma distributions, for short and for long jobs.
  Large jobs are more likely to be long.
- The logarithm of the gap between two arrivals follows a gamma distribution. Gaps are shorter by
  day than by night. All gaps are scaled so that the workload has the given load.
- Users request one to five times the time that they need, rounded up to a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bai_services.core.errors import InvalidRequest
from bai_services.core.scheduling.placement import AgentState, Policy
from bai_services.core.scheduling.queue import Backfill, GroupState
from bai_services.core.scheduling.replay.measures import report
from bai_services.core.scheduling.replay.simulate import replay
from bai_services.core.scheduling.replay.swf import FIELDS, read_swf
from bai_services.core.scheduling.replay.workload import GROUP, Job, reject_invalid_rows

SEED = 20
PROCESSORS = 128
USERS = 60
MAX_RUN_SECONDS = 36 * 3600
# Requested times are multiples of a quarter of an hour.
REQUEST_STEP_SECONDS = 900


def draw_workload(count: int, load: float, seed: int = SEED) -> list[str]:
    """Return the lines of a workload of ``count`` jobs in the Standard Workload Format.

    ``load`` is the offered load; 1 fills all processors.
    """
    rng = random.Random(seed)
    sizes = [_size(rng) for _ in range(count)]
    seconds = [_seconds(rng, size) for size in sizes]
    arrivals = _arrivals(rng, count)
    work = sum(size * s for size, s in zip(sizes, seconds, strict=True))
    stretch = work / (load * PROCESSORS * arrivals[-1])
    lines = [f"; MaxProcs: {PROCESSORS}"]
    for number in range(count):
        row = dict.fromkeys(FIELDS, -1)
        asked = min(seconds[number] * rng.uniform(1, 5), MAX_RUN_SECONDS)
        row |= {
            "job number": number + 1,
            "submit time": round(arrivals[number] * stretch),
            "run time": seconds[number],
            "requested processors": sizes[number],
            "requested time": math.ceil(asked / REQUEST_STEP_SECONDS) * REQUEST_STEP_SECONDS,
            "status": 1,
            "user id": min(USERS, int(rng.paretovariate(0.8))),
            "executable number": rng.randrange(20),
        }
        lines.append(" ".join(str(row[name]) for name in FIELDS))
    return lines


def _size(rng: random.Random) -> int:
    if rng.random() < 0.244:
        return 1
    low, middle, high = 0.8, math.log2(PROCESSORS) - 2.5, math.log2(PROCESSORS)
    stage = (low, middle) if rng.random() < 0.86 else (middle, high)
    exponent = rng.uniform(*stage)
    size = 2 ** round(exponent) if rng.random() < 0.75 else round(2**exponent)
    return max(1, min(PROCESSORS, size))


def _seconds(rng: random.Random, size: int) -> int:
    is_short = rng.random() < max(0.05, 0.78 - 0.0054 * size)
    exponent = rng.gammavariate(4.2, 0.94) if is_short else rng.gammavariate(312, 0.03)
    return max(1, min(MAX_RUN_SECONDS, round(math.exp(exponent))))


def _arrivals(rng: random.Random, count: int) -> list[float]:
    at, arrivals = 0.0, []
    for _ in range(count):
        hour = at / 3600 % 24
        # At 3 p.m., 2.5 times as many jobs arrive as at 3 a.m.
        pace = 0.4 + 0.6 * (1 - math.cos(2 * math.pi * (hour - 3) / 24)) / 2
        at += math.exp(rng.gammavariate(10.2303, 0.4871)) / pace
        arrivals.append(at)
    return arrivals


def measure(
    jobs: Sequence[Job], agents: Sequence[AgentState], backfill: Backfill
) -> tuple[dict[str, Any], float]:
    """Replay the jobs; return the report, and the seconds that the replay took."""
    state = GroupState(GROUP, placement=Policy.BEST_FIT, backfill=backfill)
    began = time.perf_counter()
    replayed = replay(jobs, agents, state)
    return report(replayed), time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", type=Path, help="a file in the Standard Workload Format")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument(
        "--load", type=float, default=0.6, help="offered load; 1 fills all processors"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    if options.workload:
        name, lines = options.workload.name, options.workload.read_text().splitlines()
    else:
        name, lines = "drawn", draw_workload(options.jobs, options.load, options.seed)
    workload = read_swf(lines, name)
    try:
        reject_invalid_rows(workload.invalid_rows)
    except InvalidRequest as error:
        print(error, file=sys.stderr)
        return 2
    # Run a few jobs first, so that the JIT compilation is not measured.
    measure(workload.jobs[:50], workload.agents, Backfill.RESERVING)
    fifo, fifo_seconds = measure(workload.jobs, workload.agents, Backfill.OFF)
    reserving, seconds = measure(workload.jobs, workload.agents, Backfill.RESERVING)
    mean = reserving["bounded_slowdown"]["mean"]
    result = {
        "jobs": len(workload.jobs),
        "workload": name,
        "seconds": round(seconds, 3),
        "bounded_slowdown_ratio": round(mean / fifo["bounded_slowdown"]["mean"], 4),
        "fifo_seconds": round(fifo_seconds, 3),
        "fifo": fifo,
        "reserving": reserving,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
