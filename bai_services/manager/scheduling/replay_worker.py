"""Compare policies in a separate process, with resource limits.

    python -m bai_services.manager.scheduling.replay_worker

The process reads a pickled ``ReplayTask`` from standard input. It writes its progress (0.0 to 1.0)
as lines to standard output, then the line ``result`` and the pickled comparison. Only the manager
communicates with this process, so both sides trust the pickles.
"""

from __future__ import annotations

import pickle
import resource
import signal
import sys
from dataclasses import dataclass
from datetime import datetime

from bai_services.core.scheduling.replay.comparison import FullComparison, compare
from bai_services.core.scheduling.replay.policies import ReplayPolicy
from bai_services.core.scheduling.replay.recorded import Record, workload_of
from bai_services.system.confinement import drop_privileges, limit_resources

RESULT = b"result\n"
OUT_OF_MEMORY = 3
# Lower priority than the manager and the sessions.
NICENESS = 10


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """A record, its period, the policies, and the limits of the process."""

    record: Record
    since: datetime
    until: datetime
    now: datetime
    current: ReplayPolicy
    others: tuple[ReplayPolicy, ...]
    memory_bytes: int
    cpu_seconds: int


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task: ReplayTask = pickle.load(sys.stdin.buffer)
    limit_resources({resource.RLIMIT_AS: task.memory_bytes, resource.RLIMIT_CPU: task.cpu_seconds})
    drop_privileges(NICENESS)
    try:
        comparison = _compare(task)
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    sys.stdout.buffer.write(RESULT)
    pickle.dump(comparison, sys.stdout.buffer)


def _compare(task: ReplayTask) -> FullComparison:
    workload = workload_of(task.record, task.since, task.until, task.now)
    return compare(workload, task.current, task.others, _print_progress)


def _print_progress(part: float) -> None:
    print(f"{part:.4f}", flush=True)


if __name__ == "__main__":
    main()
