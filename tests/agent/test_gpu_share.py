"""The GPU share benchmark, end to end, with fakes of CUDA, NVML and MPS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_share import MISSING, compute_error

from .test_cuda import driver
from .test_mps import install

__all__ = ["driver"]

ROOT = Path(__file__).parents[2]
KEYS = (
    "level", "max_memory_percent_at_quarter", "compute_error_percent", "overhead_percent",
    "watchdog_seconds",
)  # fmt: skip


@pytest.fixture(scope="session")
def cuda(tmp_path_factory: pytest.TempPathFactory, driver: Path) -> Path:
    """A folder with fakes of CUDA, cuBLAS and NVML."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).with_name("fake_cuda.c")
    shutil.copy(driver / "libnvidia-ml.so.1", folder)
    for name in ("libcuda.so.1", "libcublas.so.12"):
        words = [compiler, "-shared", "-fPIC", "-w", "-o", str(folder / name), str(source)]
        subprocess.run(words, check=True)
    return folder


def run_benchmark(path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    words = ["--seconds", "0.2", "--runs", "1", "--size", "64"]
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_share", *words],
        cwd=ROOT,
        env={"PATH": f"{path}:{os.environ['PATH']}", "TMPDIR": str(path), **environ},
        capture_output=True,
        text=True,
    )


def results_of(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [key for key in KEYS if key not in results] == []
    return results


def test_benchmark_measures_tenants_with_mps(
    cuda: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("b")
    install(folder)
    held = str(folder / "processes")
    results = results_of(run_benchmark(folder, LD_LIBRARY_PATH=str(cuda), NVML_PROCESSES=held))
    assert (results["level"], results["why_no_mps"]) == ("process", "")
    # Slightly less than 25: the MPS server reserves memory, and the limit is a quarter of the rest.
    assert 24 < results["max_memory_percent_at_quarter"] <= 25
    assert results["memory_percent_past_mps"] == 100
    assert results["watchdog_seconds"] > 0
    assert results["recovery"]["neighbour_continues"]
    assert results["fault"]["error_code"] == 700
    assert results["fault"]["new_tenant_seconds"] is not None
    pairs = ["large+large", "small+small", "large+copy"]
    side_by_side = results["with_mps"]
    assert list(side_by_side["pairs_at_50_percent"]) == pairs
    assert list(side_by_side["pairs_at_100_percent"]) == pairs
    for count in (2, 4, 10):
        assert 0 < side_by_side[f"{count}_tenants"]["small"]["fairness"] <= 1
    rates = list(results["teraflops_by_percent"])
    assert rates == ["5", "10", "25", "50", "75", "100"]


def test_benchmark_without_mps_reports_the_reason(
    cuda: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("b")
    held = str(folder / "processes")
    results = results_of(run_benchmark(folder, LD_LIBRARY_PATH=str(cuda), NVML_PROCESSES=held))
    assert (results["level"], results["overhead_percent"]) == ("soft", None)
    assert "not installed" in results["why_no_mps"]
    alone = results["without_mps"]
    assert alone["max_memory_percent"] == 100
    assert {"pairs", "2_tenants", "4_tenants", "10_tenants", "launch_microseconds"} <= set(alone)


def test_benchmark_without_gpu_or_cuda_exits_without_results(tmp_path: Path, driver: Path) -> None:
    assert run_benchmark(tmp_path, LD_LIBRARY_PATH=str(tmp_path)).returncode == MISSING
    done = run_benchmark(tmp_path, LD_LIBRARY_PATH=str(driver))
    assert (done.returncode, done.stdout) == (MISSING, "")
    assert "nothing can be computed on Fake H100" in done.stderr


@pytest.mark.parametrize(
    "rates, error",
    [
        pytest.param({10: 10.0, 50: 50.0, 100: 100.0}, 0.0, id="rates proportional to the shares"),
        pytest.param({10: 12.0, 100: 100.0}, 20.0, id="error is relative to the share"),
        pytest.param({5: 100.0, 100: 100.0}, 0.0, id="shares below 10 percent are ignored"),
    ],
)
def test_compute_error_is_the_largest_relative_deviation(
    rates: dict[int, float], error: float
) -> None:
    assert compute_error(rates) == error
