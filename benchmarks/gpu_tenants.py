"""Tenants of a GPU as processes, with or without MPS, for gpu_share."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bai_services.agent.devices.nvidia.mps import Limits, MpsControl

ANSWER_SECONDS = 120.0
Environ = Mapping[str, str]


class Tenant:
    """A worker process; compute and hold workers wait until ``go``."""

    def __init__(self, words: Sequence[object], environ: Environ) -> None:
        # With MPS a tenant sees its GPU as number 0, whatever its number outside.
        kept = {
            name: text
            for name, text in os.environ.items()
            if "MPS" not in name and name != "CUDA_VISIBLE_DEVICES"
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_worker", *map(str, words)],
            env={**kept, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Tenant:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.communicate()

    def answer(self) -> dict[str, Any]:
        """Return the worker's next message.

        Raises
        ------
        RuntimeError
            If it ends without a message, or CUDA fails.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a tenant ended with {self.process.wait(ANSWER_SECONDS)}")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise RuntimeError(f"a tenant cannot go on: {said['error']}")
        return said

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()


def ask(words: Sequence[object], environ: Environ) -> dict[str, Any]:
    """Run a worker to its end and return its result."""
    with Tenant(words, environ) as tenant:
        return tenant.answer()


def together(tasks: Sequence[tuple[Sequence[object], Environ]]) -> list[float]:
    """Run tenants at the same time and return the rate of each.

    A task is the command line of a worker that computes or copies, and its environment.
    """
    tenants = [Tenant(words, environ) for words, environ in tasks]
    try:
        for tenant in tenants:
            tenant.answer()
        for tenant in tenants:
            tenant.go()
        return [float(tenant.answer()["per_second"]) for tenant in tenants]
    finally:
        for tenant in tenants:
            tenant.__exit__()


def median_rate(words: Sequence[object], environ: Environ, runs: int) -> float:
    """Return the median rate of one tenant."""
    return statistics.median(together([(words, environ)])[0] for _ in range(runs))


@contextmanager
def mps(folder: Path, uuid: str, limits: Limits) -> Iterator[dict[str, str]]:
    """Run an MPS daemon with these limits; yield the environment for its clients."""
    control = MpsControl(folder / "mps", uuid, has_own_shm=False)
    control.start(limits)
    try:
        yield {"CUDA_MPS_PIPE_DIRECTORY": str(control.pipe)}
    finally:
        control.kill()
