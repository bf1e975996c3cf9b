"""`benchmarks.trace`, run on small generated files instead of the published trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.trace import MISSING, arrivals, main, read_files

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The arguments of the benchmark, with generated files.

    The cluster has ten nodes with four devices each. The workload requests about half of the
    devices.
    """
    nodes = [f"node-{i},32000,131072,4,{'T4' if i % 2 else 'G2'}" for i in range(10)]
    kinds = ["2000,4096,1,1000,", "1000,2048,1,470,", "1000,2048,1,500,T4", "4000,8192,0,0,"]
    kinds.append("8000,16384,2,1000,")
    rows = [f"pod-{i:03},{kinds[i % 5]},LS,Running,0,{100 + i},0" for i in range(25)]
    (tmp_path / "nodes.csv").write_text(NODES + "\n".join(nodes) + "\n")
    (tmp_path / "pods.csv").write_text(PODS + "\n".join(rows) + "\n")
    return ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]


@pytest.mark.parametrize("policy", ["random", "best-fit", "fgd", "priced", "pack"])
def test_output_contains_the_results_of_each_seed_and_their_mean(
    policy: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*files, "--policy", policy, "--seeds", "2"]) == 0
    result = json.loads(capsys.readouterr().out)
    for key in ("seconds", "placed", "gpu_allocation_percent", "fragmentation_percent"):
        assert len(result[f"{key}_by_seed"]) == 2
        assert result[key] == pytest.approx(sum(result[f"{key}_by_seed"]) / 2, rel=0.02, abs=0.01)
    assert 80 < result["gpu_allocation_percent"] <= 100
    assert 0 <= result["fragmentation_percent"] <= 100 - result["gpu_allocation_percent"] + 1
    assert result["us_per_decision"] > 0
    assert main([*files, "--policy", policy, "--seeds", "2"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["placed_by_seed"] == result["placed_by_seed"]


@pytest.mark.parametrize("load", [0.2, 0.7, 1.3])
def test_rows_are_repeated_or_removed_to_reach_the_load(files: list[str], load: float) -> None:
    _, pods = read_files(Path(files[1]), Path(files[3]))
    rows = arrivals(pods, 40_000, load, 42)
    demand = sum(pod.demand for pod in rows)
    assert demand <= 40_000 * load + 1000  # The last pod can exceed the load.
    assert demand > 40_000 * load - 2000
    if load > 0.7:
        assert {id(pod) for pod in rows[: len(pods)]} == {id(pod) for pod in pods}
    assert rows == arrivals(pods, 40_000, load, 42) != arrivals(pods, 40_000, load, 43)


def test_missing_file_is_reported(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[1]).unlink()
    assert main([*files, "--policy", "priced"]) == MISSING
    output = capsys.readouterr()
    assert "not found" in output.err and not output.out


@pytest.mark.parametrize(
    "row, message",
    [
        pytest.param(
            "x,many,1,1,1000,,LS,Running,0,5,0", "column cpu_milli", id="cpu_milli is not a number"
        ),
        pytest.param(
            "x,1,1,2,500,,LS,Running,0,5,0", "column gpu_milli", id="shares of two devices at once"
        ),
    ],
)
def test_invalid_row_is_reported(
    files: list[str], row: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path(files[3]).open("a") as file:
        file.write(row + "\n")
    assert main([*files, "--policy", "priced"]) == 2
    assert message in capsys.readouterr().err
