"""Enforcement of GPU shares on a real NVIDIA GPU, whose settings the tests do not change."""

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
def results() -> Any:
    if not [gpu for gpu in CudaGpus().discover() if gpu.is_healthy]:
        pytest.skip("there is no NVIDIA GPU here")
    words = [sys.executable, "-m", "benchmarks.gpu_share", "--seconds", "2", "--runs", "3"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == MISSING:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def mps_result(figures: Any, name: str) -> Any:
    if figures["why_no_mps"]:
        pytest.skip(f"MPS is not available: {figures['why_no_mps']}")
    return figures[name]


@pytest.mark.timeout(1200)
def test_the_watchdog_stops_a_session_above_its_share_within_3_s(results: Any) -> None:
    assert results["watchdog_seconds"] is not None
    assert results["watchdog_seconds"] <= 3


def test_a_quarter_share_gets_at_most_a_quarter_of_the_memory(results: Any) -> None:
    assert mps_result(results, "max_memory_percent_at_quarter") <= 25


def test_compute_rates_are_proportional_to_shares(results: Any) -> None:
    assert mps_result(results, "compute_error_percent") <= 15


def test_mps_costs_a_single_client_at_most_3_percent(results: Any) -> None:
    assert mps_result(results, "overhead_percent") <= 3


def test_mps_slows_copies_by_at_most_3_percent(results: Any) -> None:
    assert mps_result(results, "copy_overhead_percent") <= 3


def test_two_small_workloads_have_a_higher_combined_rate_with_mps_than_without(
    results: Any,
) -> None:
    sliced = results["without_mps"]["pairs"]["small+small"]["of_one_alone"]
    side_by_side = mps_result(results, "with_mps")["pairs_at_50_percent"]["small+small"]
    assert side_by_side["of_one_alone"] > sliced


def test_a_new_tenant_can_compute_after_a_fault(results: Any) -> None:
    assert mps_result(results, "fault").get("new_tenant_seconds") is not None


def test_a_killed_tenant_does_not_stop_its_neighbour(results: Any) -> None:
    assert mps_result(results, "recovery")["neighbour_continues"]
