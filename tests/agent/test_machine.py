"""Capacity and load of a machine, the agent id from its host name, and the bubblewrap check."""

from __future__ import annotations

import os
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from bai_services.agent import machine
from bai_services.agent.machine_load import MachineLoad, busy_percent


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
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert capacity.cpu_millis == (cpu_millis or len(os.sched_getaffinity(0)) * 1000)
    assert capacity.mem_bytes == (mem_bytes or pages)


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


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_bubblewrap_without_pid_namespace_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fake that runs the command without isolation.
    fake_bubblewrap(tmp_path, 'while [ "$1" != "--" ]; do shift; done; shift; exec "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert machine.bubblewrap_problem() is not None


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


def test_load_is_measured_since_the_last_measurement_in_any_thread(tmp_path: Path) -> None:
    load = MachineLoad(tmp_path)
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    # Measure in another thread, as the agent does: its measurements run in a thread pool.
    with ThreadPoolExecutor(1) as pool:
        measured = pool.submit(load.facts).result()["load"]
    assert 0 < measured["cpu_percent"] <= 100
    assert max(measured["cpus_percent"]) > 0
    assert measured["network_received_bytes_per_second"] >= 0


def test_load_of_a_missing_disk_is_unknown(tmp_path: Path) -> None:
    load = MachineLoad(tmp_path / "gone").facts()["load"]
    assert (load["disk_used_bytes"], load["disk_bytes"]) == (None, None)
