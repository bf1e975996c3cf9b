"""Worker processes of the GPU benchmarks: stopped after a failure, killed after a timeout."""

from __future__ import annotations

import signal

import psutil
import pytest

from benchmarks.gpu_tenants import Tenant, concurrent_rates


def test_concurrent_rates_stops_all_workers_if_one_cannot_start() -> None:
    before = {process.pid for process in psutil.Process().children()}
    # An environment variable with "=" in its name makes Popen fail.
    tasks: list[tuple[list[object], dict[str, str]]] = [(["check"], {}), (["check"], {"A=B": ""})]
    with pytest.raises(ValueError, match="illegal environment variable name"):
        concurrent_rates(tasks)
    assert {process.pid for process in psutil.Process().children()} <= before


def test_a_silent_worker_is_killed_after_the_timeout() -> None:
    with (
        Tenant(["check"], {}) as tenant,
        pytest.raises(RuntimeError, match="a tenant exited with -9"),
    ):
        tenant.process.send_signal(signal.SIGSTOP)
        tenant.message(timeout_seconds=0.001)
