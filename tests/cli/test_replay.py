"""`bai admin replay`: input files, table, JSON and plots, and the history of a hub."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bai_services.cli.main import main
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai
from .test_sessions import QUARTER, bring_to_running, report_exit

PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,4000,1024,1,1000,,LS,Running,0,100,0
p2,4000,1024,1,500,,LS,Running,10,110,10
p3,4000,1024,1,500,,BE,Running,20,120,20
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,16000,65536,1,T4\n"
SWF = "; MaxProcs: 4\n" + "\n".join(
    f"{n} {n} -1 60 4 -1 -1 4 120 -1 1 {n % 2} 1 1 1 1 -1 -1" for n in range(1, 4)
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "jobs.swf").write_text(SWF)
    (tmp_path / "mine.yaml").write_text("scheduler: fifo\nscheduler_opts: {backfill: reserving}\n")
    (tmp_path / "off.json").write_text('{"scheduler_opts": {"backfill": "off"}}')
    return tmp_path


def run(files: Path, *arguments: object) -> Result:
    """Run the command with paths relative to ``files``, without a hub."""
    texts = [str(files / a) if isinstance(a, Path) else str(a) for a in arguments]
    return CliRunner().invoke(main, ["admin", "replay", *texts])


def openb(*more: object) -> tuple[object, ...]:
    """Return the arguments to replay a workload in the openb format, followed by ``more``."""
    return (
        "--workload", Path("pods.csv"), "--nodes", Path("nodes.csv"),
        "--policy", Path("mine.yaml"), *more,
    )  # fmt: skip


def error_of(result: Result) -> str:
    assert (result.exit_code != 0, result.stdout) == (True, "")
    message = json.loads(result.stderr)["message"]
    assert isinstance(message, str)
    return message


def test_table_compares_policies(files: Path) -> None:
    result = run(files, *openb("--policy", Path("off.json")))
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["MEASURE", "MINE", "OFF"]
    assert ["started", "3", "3"] in lines
    assert ["maximum", "wait,", "s", "90", "90"] in lines
    assert ["cuda", "utilization,", "%", "100", "100"] in lines


def test_json_document_contains_the_measures(files: Path) -> None:
    result = run(files, *openb("--json"))
    document = json.loads(result.stdout)
    found = document["policies"]["mine"]
    assert (document["agents"], found["started"]) == (1, 3)
    assert found["wait_seconds"] == {"mean": 56.667, "median": 80.0, "p95": 89.0, "max": 90.0}
    assert found["fairness"]["users"] == 2


def test_plots_are_written(files: Path) -> None:
    document = json.loads(run(files, *openb("--json", "--plots", Path("plots"))).stdout)
    names = {Path(path).name for path in document["plots"]}
    assert names == {"waits.svg", "slowdowns.svg", "utilization.svg", "queue.svg"}
    for name in names:
        assert "<svg" in (files / "plots" / name).read_text()


def test_swf_workload_needs_no_nodes_file(files: Path) -> None:
    result = run(files, "--workload", Path("jobs.swf"), "--policy", Path("mine.yaml"), "--json")
    found = json.loads(result.stdout)["policies"]["mine"]
    assert found["wait_seconds"]["max"] == 118
    assert found["utilization_percent"] == {"cpu": 100.0}


def test_skip_broken_skips_invalid_rows(files: Path) -> None:
    (files / "pods.csv").write_text(PODS + "p4,lots,1,0,0,,LS,Running,0,9,0\n")
    message = error_of(run(files, *openb("--json")))
    assert "pods.csv, row 5, column cpu_milli: 'lots' is not a whole number" in message
    assert "--skip-broken" in message
    document = json.loads(run(files, *openb("--json", "--skip-broken")).stdout)
    assert document["policies"]["mine"]["jobs"] == 3
    assert len(document["broken_rows"]) == 1


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        ("pods.csv", "p1,lots,1,0,0,,LS,Running,0,9,0", "no session that ran"),
        ("nodes.csv", "n1,lots,1,0,T4", "no machines"),
    ],
)
def test_skip_broken_needs_a_valid_session_and_machine(
    files: Path, file: str, row: str, message: str
) -> None:
    header = (files / file).read_text().splitlines()[0]
    (files / file).write_text(f"{header}\n{row}\n")
    error = error_of(run(files, *openb("--json", "--skip-broken")))
    assert message in error
    assert f"1 invalid row, the first: {file}, row 2, column cpu_milli" in error


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mine.yaml", "scheduler: best\n", "'best' is not a valid scheduler"),
        ("mine.yaml", "scheduler_opts: {placement: tight}\n", "'tight' is not a valid placement"),
        ("mine.yaml", "{", "is neither YAML nor JSON"),
        ("mine.yaml", "- a\n", "write a map"),
        ("pods.csv", "a,b\n1,2\n", "has no column name"),
        ("pods.csv", PODS.splitlines()[0] + "\n", "nothing to replay"),
        ("pods.csv", '{"sessions": 3}', "is not a history of a hub"),
        ("pods.csv", "{", "is not valid JSON"),
    ],
)
def test_invalid_input_file_is_rejected(files: Path, name: str, text: str, message: str) -> None:
    (files / name).write_text(text)
    assert message in error_of(run(files, *openb("--json")))


def test_error_names_missing_or_conflicting_input(files: Path) -> None:
    policy = ("--policy", Path("mine.yaml"), "--json")
    message = error_of(run(files, "--workload", Path("pods.csv"), *policy))
    assert "lists no machines; pass --nodes CSV" in message
    message = error_of(run(files, "--workload", Path("gone.csv"), *policy))
    assert "No such file" in message
    (files / "x.txt").write_text("hello")
    message = error_of(run(files, "--workload", Path("x.txt"), *policy))
    assert "has an unknown format" in message
    message = error_of(run(files, *openb("--json", "--resource-group", "gpu")))
    assert "--resource-group applies only to a hub's session history" in message
    (files / "more").mkdir()
    (files / "more" / "mine.yaml").write_text("{}")
    message = error_of(run(files, *openb("--json", "--policy", Path("more/mine.yaml"))))
    assert "two policy files are named mine" in message


def test_error_names_the_missing_extra(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "bai_services.cli.admin.replay_plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = error_of(run(files, *openb("--json", "--plots", Path("plots"))))
    assert "needs matplotlib; install it with: pip install 'bai-hub[replay]'" in message


async def test_history_of_a_hub_is_replayed(
    bai: Bai, api: Api, agent: FakeAgent, files: Path
) -> None:
    arguments = ("admin", "replay", "--workload", "hub", "--policy", files / "mine.yaml", "--json")
    nothing = await bai(*arguments)
    assert "nothing to replay" in nothing.error["message"]
    created = await bai(
        "session",
        "create",
        "replayed",
        "--project",
        "default",
        "--image",
        "python",
        *QUARTER,
        by="user",
    )
    assert created.code == 0, created
    await bring_to_running(api, agent, "replayed")
    found = (await bai(*arguments)).document
    assert (found["agents"], found["policies"]["mine"]["started"]) == (1, 1)
    session = (await bai("session", "info", "replayed", "--json", by="user")).document
    await report_exit(api, session["id"])
    exported = {"sessions": [session]}
    (files / "history.json").write_text(json.dumps(exported))
    message = error_of(
        run(
            files, "--workload", Path("history.json"), "--policy", Path("mine.yaml"), "--json"
        )
    )  # fmt: skip
    assert "lists no machines; pass --nodes CSV" in message
