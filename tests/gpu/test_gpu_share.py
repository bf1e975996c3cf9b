"""Enforcement of GPU shares on a real NVIDIA GPU; settings of the device are not changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bai_services.agent.devices.nvidia.cuda import CudaGpus

ROOT = Path(__file__).parents[2]
MISSING = 6


@pytest.fixture(scope="module")
def figures() -> Any:
    if not [gpu for gpu in CudaGpus().discover() if gpu.is_healthy]:
        pytest.skip("there is no NVIDIA GPU here")
    words = [sys.executable, "-m", "benchmarks.gpu_share", "--seconds", "2", "--runs", "3"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == MISSING:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def mps_figure(figures: Any, name: str) -> Any:
    if figures["why_no_mps"]:
        pytest.skip(f"no MPS here: {figures['why_no_mps']}")
    return figures[name]


@pytest.mark.timeout(1200)
def test_the_watchdog_stops_a_session_above_its_share_within_3_s(figures: Any) -> None:
    assert figures["watchdog_seconds"] is not None
    assert figures["watchdog_seconds"] <= 3


def test_a_quarter_share_gets_at_most_a_quarter_of_the_memory(figures: Any) -> None:
    assert mps_figure(figures, "max_memory_percent_at_quarter") <= 25


def test_compute_rates_are_proportional_to_shares(figures: Any) -> None:
    assert mps_figure(figures, "compute_error_percent") <= 15


def test_mps_costs_a_single_client_at_most_3_percent(figures: Any) -> None:
    assert mps_figure(figures, "overhead_percent") <= 3


def test_mps_slows_copies_by_at_most_3_percent(figures: Any) -> None:
    assert mps_figure(figures, "copy_overhead_percent") <= 3


def test_small_computations_are_faster_in_parallel_under_mps(figures: Any) -> None:
    sliced = figures["without_mps"]["pairs"]["small+small"]["of_one_alone"]
    side_by_side = mps_figure(figures, "with_mps")["pairs_at_50_percent"]["small+small"]
    assert side_by_side["of_one_alone"] > sliced


def test_a_new_tenant_can_compute_after_a_fault(figures: Any) -> None:
    assert mps_figure(figures, "fault").get("new_tenant_seconds") is not None


def test_a_killed_tenant_does_not_stop_its_neighbour(figures: Any) -> None:
    assert mps_figure(figures, "recovery")["neighbour_continues"]
