"""Capacity and load of a machine, the agent id from its host name, and the bubblewrap check."""

from __future__ import annotations

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from bai_services.agent import machine
from bai_services.agent.machine_load import MachineLoad, busy_percent
from tests.testbed.wait import wait_until


@pytest.mark.parametrize(
    "files, cpu_millis, mem_bytes",
    [
        pytest.param({}, None, None, id="no cgroup"),
        pytest.param(
            {"cpu.max": "50000 100000", "memory.max": "1048576"}, 500, 2**20, id="cgroup v2"
        ),
        pytest.param(
            {"cpu.max": "max 100000", "memory.max": "max"},
            None,
            None,
            id="cgroup v2 without limits",
        ),
        pytest.param(
            {
                "cpu/cpu.cfs_quota_us": "25000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "2097152",
            },
            250,
            2**21,
            id="cgroup v1",
        ),
        pytest.param(
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            None,
            None,
            id="cgroup v1 without limits",
        ),
    ],
)
def test_capacity_is_limited_by_cpu_affinity_and_cgroup(
    tmp_path: Path, files: dict[str, str], cpu_millis: int | None, mem_bytes: int | None
) -> None:
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    capacity = machine.detect_capacity(tmp_path)
    physical_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert capacity.cpu_millis == (cpu_millis or len(os.sched_getaffinity(0)) * 1000)
    assert capacity.mem_bytes == (mem_bytes or physical_bytes)


def test_cpu_affinity_limits_the_capacity(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert machine.detect_capacity(tmp_path).cpu_millis == 1000
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    "name, slug",
    [
        ("node1.example.org", "node1.example.org"),
        ("_My Node_", "My-Node"),
        ("a..b", "a.b"),
        ("é", "agent"),
        ("x" * 80, "x" * 64),
    ],
)
def test_hostname_is_converted_to_a_valid_agent_id(name: str, slug: str) -> None:
    assert machine.hostname_slug(name) == slug


def fake_bubblewrap(folder: Path, script: str) -> None:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_missing_or_failing_bubblewrap_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "not installed" in str(machine.bubblewrap_problem())
    fake_bubblewrap(tmp_path, "echo 'No permissions to create new namespace' >&2; exit 1")
    assert "No permissions" in str(machine.bubblewrap_problem())
    detected = machine.detect_isolation("process")
    assert detected.isolation == "none"
    assert "not isolated" in detected.notices[0]
    assert machine.detect_isolation("docker") == machine.Isolation("docker")


def test_bubblewrap_without_pid_namespace_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fake that runs the command, but creates none of the requested namespaces.
    fake_bubblewrap(tmp_path, 'while [ "$1" != "--" ]; do shift; done; shift; exec "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "does not create a PID namespace" in str(machine.bubblewrap_problem())


class Times(NamedTuple):
    user: float = 0.0
    idle: float = 0.0
    iowait: float = 0.0
    guest: float = 0.0


@pytest.mark.parametrize(
    "after, percent",
    [
        pytest.param(Times(user=1, idle=3), 25.0, id="busy for a quarter of the time"),
        pytest.param(Times(user=1, idle=1, iowait=2), 25.0, id="waiting for a disk counts as idle"),
        pytest.param(Times(user=2, idle=2, guest=2), 50.0, id="guest time is part of user time"),
        pytest.param(Times(), 0.0, id="no time has passed"),
        pytest.param(Times(user=1, idle=-0.5), 100.0, id="a counter decreased"),
    ],
)
def test_busy_percent_of_a_cpu_is_computed_from_two_readings(after: Times, percent: float) -> None:
    assert busy_percent(Times(), after) == percent


class Counters(NamedTuple):
    """Counters of this machine, which never decrease; the times of each CPU are in seconds."""

    at: float
    busy: tuple[float, ...]
    total: tuple[float, ...]
    received: int
    sent: int

    @classmethod
    def read(cls) -> Counters:
        cpus = psutil.cpu_times(percpu=True)
        total = tuple(sum(cpu) - cpu.guest - cpu.guest_nice for cpu in cpus)
        busy = tuple(t - cpu.idle - cpu.iowait for t, cpu in zip(total, cpus, strict=True))
        network = [c for name, c in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        received, sent = sum(c.bytes_recv for c in network), sum(c.bytes_sent for c in network)
        return cls(time.monotonic(), busy, total, received, sent)


# Duration of one step of the load test. The tolerance covers the 10 ms ticks of the counters.
STEP_SECONDS = 0.3
TOLERANCE_PERCENT = 7


def use_one_cpu() -> None:
    end = time.thread_time() + STEP_SECONDS
    while time.thread_time() < end:
        pass


def use_no_cpu() -> None:
    end = time.monotonic() + STEP_SECONDS
    wait_until(lambda: time.monotonic() >= end, 10, "the end of the step")


def test_load_is_measured_since_the_last_measurement_in_any_thread(tmp_path: Path) -> None:
    before = Counters.read()
    load = MachineLoad(tmp_path)
    after = Counters.read()
    # First with work, then without, so that the two loads differ on a machine that is not busy.
    for step in (use_one_cpu, use_no_cpu):
        step()
        then = Counters.read()
        # Measure in another thread, as the agent does: its measurements run in a thread pool.
        with ThreadPoolExecutor(1) as pool:
            measured = pool.submit(load.facts).result()["load"]
        now = Counters.read()
        # The measured interval contains the time from ``after`` to ``then``, and is contained in
        # the time from ``before`` to ``now``.
        for index, percent in enumerate(measured["cpus_percent"]):
            least = (then.busy[index] - after.busy[index]) / (
                now.total[index] - before.total[index]
            )
            most = (now.busy[index] - before.busy[index]) / (then.total[index] - after.total[index])
            assert 100 * least - TOLERANCE_PERCENT <= percent <= 100 * most + TOLERANCE_PERCENT
        shortest, longest = then.at - after.at, now.at - before.at
        for name in ("received", "sent"):
            rate = measured[f"network_{name}_bytes_per_second"]
            assert rate >= (getattr(then, name) - getattr(after, name)) / longest - 1
            assert rate <= (getattr(now, name) - getattr(before, name)) / shortest + 1
        before, after = then, now


def test_load_of_a_missing_disk_is_unknown(tmp_path: Path) -> None:
    load = MachineLoad(tmp_path / "gone").facts()["load"]
    assert (load["disk_used_bytes"], load["disk_bytes"]) == (None, None)
