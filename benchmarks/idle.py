"""Cost of idle checkers for sessions with 8 devices.

`judged_per_second` is the number of sessions that one core judges per second with one utilization
checker with a window of one hour (240 samples). `samples_core_percent` is the load of one core in
percent: every 15 seconds, the samples of `--sampled` sessions are converted from JSON and added to
the arrays. Both are measured in CPU time, so that other programs on the machine matter less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bai_services.core.sessions.idle_checks.checkers import (
    AppliedChecker,
    Checker,
    CheckerSettings,
    CheckerType,
)
from bai_services.core.sessions.idle_checks.judging import JudgedSession, judge
from bai_services.core.sessions.idle_checks.usage_table import (
    DeviceFacts,
    KernelFacts,
    UsageTable,
)
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.usage_history import FINE, Sample

_START = datetime(2030, 1, 1, tzinfo=UTC)
_POINTS = 240
_DEVICES = {f"gpu-{n}": DeviceFacts("cuda", 80 * 2**30) for n in range(8)}
_CHECKER = Checker(
    "c",
    "gpu",
    CheckerType.UTILIZATION,
    CheckerSettings(3600, thresholds={"cpu_util": 10, "cuda_util": 5, "cuda_mem": 20}),
)


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    arguments = _parser().parse_args()
    add_seconds = [_time_adding(arguments.sampled) for _ in range(arguments.rounds)]
    table, sessions = _filled(arguments.sessions)
    now = _START + timedelta(seconds=FINE.interval_seconds * _POINTS + 30)
    judge_seconds = []
    for _ in range(arguments.rounds):
        start = time.process_time()
        judgements = judge(sessions, {FINE: table}, now)
        judge_seconds.append(time.process_time() - start)
        assert len(judgements) == arguments.sessions
        assert any(judgement.is_due for judgement in judgements)
    figures = {
        "judged_per_second": round(arguments.sessions / statistics.median(judge_seconds)),
        "samples_core_percent": round(
            100 * statistics.median(add_seconds) / FINE.interval_seconds, 2
        ),
        "sessions": arguments.sessions,
        "sampled_sessions": arguments.sampled,
    }
    print(json.dumps(figures, indent=2))
    return 0


def _texts(count: int) -> list[tuple[str, str, str]]:
    """Return the kernel id, the metrics and the devices of samples, as a database stores them."""
    metrics = json.dumps(
        {
            "cpu_cores": 0.2,
            "mem_bytes": 2e9,
            "net_rx_bytes_per_second": 10.0,
            "net_tx_bytes_per_second": 10.0,
            "io_read_bytes_per_second": 10.0,
            "io_write_bytes_per_second": 10.0,
        }
    )
    devices = [
        json.dumps(
            {name: {"utilization_percent": n % 3 * 40.0, "memory_bytes": 1e9} for name in _DEVICES}
        )
        for n in range(3)
    ]
    return [(f"k{n}", metrics, devices[n % 3]) for n in range(count)]


def _samples(texts: Sequence[tuple[str, str, str]], at: datetime) -> list[Sample]:
    return [Sample(key, at, json.loads(one), json.loads(two)) for key, one, two in texts]


def _kernels(count: int) -> dict[str, KernelFacts]:
    return {f"k{n}": KernelFacts(f"k{n}", f"s{n}", 16.0, 2**36, _DEVICES) for n in range(count)}


def _time_adding(count: int) -> float:
    """Return the seconds that are needed to add the samples of one interval."""
    table, kernels, texts = UsageTable(FINE, _POINTS), _kernels(count), _texts(count)
    table.add(_samples(texts, _START), kernels)
    start = time.process_time()
    table.add(_samples(texts, _START + timedelta(seconds=15)), kernels)
    return time.process_time() - start


def _filled(count: int) -> tuple[UsageTable, list[JudgedSession]]:
    """Return a table whose samples cover the whole window, and the sessions."""
    table, kernels, texts = UsageTable(FINE, _POINTS), _kernels(count), _texts(count)
    samples = _samples(texts, _START)
    for number in range(_POINTS + 1):
        at = _START + timedelta(seconds=FINE.interval_seconds * number)
        table.add([replace(sample, at=at) for sample in samples], kernels)
    applied = (AppliedChecker(_CHECKER, is_dry_run=False),)
    started_at = _START - timedelta(hours=2)
    sessions = [
        JudgedSession(
            f"s{n}",
            SessionType.INTERACTIVE,
            started_at,
            None,
            None,
            (f"k{n}",),
            frozenset({"cuda"}),
            0,
            applied,
        )
        for n in range(count)
    ]
    return table, sessions


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--sessions", type=int, default=4_000)
    parser.add_argument("--sampled", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    return parser


if __name__ == "__main__":
    sys.exit(main())
