"""Worker processes as tenants of a GPU, with or without MPS; used by `benchmarks.gpu_share`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bai_services.agent.devices.nvidia.mps import Limits, MpsControl

MESSAGE_TIMEOUT_SECONDS = 120.0
EXIT_SECONDS = 60.0  # for a worker that was killed or has closed its output
Environ = Mapping[str, str]


class Tenant:
    """A worker process.

    Workers that compute, copy or hold memory first send the message ``ready`` and wait for ``go``.
    """

    def __init__(self, args: Sequence[object], environ: Environ) -> None:
        # With MPS, a tenant sees its GPU as number 0. It must not inherit the device numbers of
        # this process.
        inherited = {
            name: text
            for name, text in os.environ.items()
            if "MPS" not in name and name != "CUDA_VISIBLE_DEVICES"
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_worker", *map(str, args)],
            env={**inherited, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Tenant:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.communicate()

    def message(self, timeout_seconds: float = MESSAGE_TIMEOUT_SECONDS) -> dict[str, Any]:
        """Return the worker's next message; kill the worker after the timeout.

        Raises
        ------
        RuntimeError
            If the worker exits or is killed before it sends a message, or if CUDA fails.
        """
        assert self.process.stdout is not None
        timer = threading.Timer(timeout_seconds, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise RuntimeError(f"a tenant exited with {self.process.wait(EXIT_SECONDS)}")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise RuntimeError(f"CUDA failed in a tenant: {message['error']}")
        return message

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()


def run_worker(args: Sequence[object], environ: Environ) -> dict[str, Any]:
    """Run a worker and return its first message."""
    with Tenant(args, environ) as tenant:
        return tenant.message()


def concurrent_rates(tasks: Sequence[tuple[Sequence[object], Environ]]) -> list[float]:
    """Run tenants at the same time and return their rates, in the order of the tasks.

    A task is the arguments and the environment of a worker that computes or copies. A rate is in
    operations or bytes per second.
    """
    with ExitStack() as stack:
        tenants = [stack.enter_context(Tenant(args, environ)) for args, environ in tasks]
        for tenant in tenants:
            tenant.message()
        for tenant in tenants:
            tenant.go()
        return [float(tenant.message()["per_second"]) for tenant in tenants]


def median_rate(args: Sequence[object], environ: Environ, runs: int) -> float:
    """Return the median rate over ``runs`` runs of one tenant, as in ``concurrent_rates``."""
    return statistics.median(concurrent_rates([(args, environ)])[0] for _ in range(runs))


@contextmanager
def mps(folder: Path, uuid: str, limits: Limits) -> Iterator[dict[str, str]]:
    """Run an MPS daemon with these limits; yield the environment for the daemon's clients."""
    control = MpsControl(folder / "mps", uuid, has_own_shm=False)
    control.start(limits)
    try:
        yield {"CUDA_MPS_PIPE_DIRECTORY": str(control.pipe)}
    finally:
        control.kill()
