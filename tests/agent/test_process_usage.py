"""Resource usage of real process trees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bai_services.agent.processes import Processes

BURN = "import time\nwhile time.process_time() < 0.2: pass"
# Waits for a line before and after the child process.
SCRIPT = f"read line; {sys.executable} -c '{BURN}'; echo done; read line"


@pytest.fixture
def kernel() -> Iterator[subprocess.Popen[str]]:
    """The process of a kernel, which runs a child process when it reads a line."""
    names = {"BAI_AGENT_ID": "a", "BAI_SESSION_ID": "s", "BAI_KERNEL_ID": "k"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["/bin/sh", "-c", SCRIPT], env={**os.environ, **names}, stdin=pipe, stdout=pipe, text=True
    ) as process:
        yield process
        process.kill()


def test_cpu_time_of_ended_processes_counts_and_is_unknown_at_first(
    kernel: subprocess.Popen[str],
) -> None:
    processes = Processes("a")
    (tree,) = processes.trees()
    assert "cpu_cores" not in processes.usage(tree)
    assert kernel.stdin is not None
    assert kernel.stdout is not None
    kernel.stdin.write("\n")
    kernel.stdin.flush()
    assert kernel.stdout.readline() == "done\n"
    (tree,) = processes.trees()
    usage = processes.usage(tree)
    assert usage["cpu_seconds"] >= 0.15  # 0.2, less the rounding to clock ticks
    assert usage["cpu_cores"] > 0
