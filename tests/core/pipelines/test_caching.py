"""Scripts of cached tasks, run by the shells of images."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bai_services.core.pipelines.caching import CACHED_LINE, MAX_ENTRIES
from bai_services.core.pipelines.parameters import resolve
from bai_services.core.pipelines.parsing import parse_pipeline
from bai_services.core.pipelines.requests import RunContext, session_request
from bai_services.core.pipelines.states import Plan, TaskRun

HEAD = """\
version: 1
name: cached
parameters:
- {name: epochs, type: integer, default: 1}
- {name: label, default: a}
tasks:
"""
TASK = """\
- name: fit
  command: |
    cat input/* > "out/ä b"; echo "$PARAM_EPOCHS" >> "out/ä b"; echo x >> /pipeline/count
  inputs: [input]
  outputs: ["out/ä b", -d]
  cache: {files: [fit.py], parameters: [epochs]}
"""


@dataclass
class Folder:
    """The folder of a pipeline, and the shell of its image."""

    root: Path
    shell: str

    def run(
        self,
        run: str = "1",
        *,
        tasks: str = TASK,
        image: str = "python sha256:1",
        data: str = "data",
        given: Mapping[str, object] | None = None,
        index: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        definition = parse_pipeline(HEAD + tasks)
        plan = Plan.of(definition, resolve(definition, given or {}))
        context = RunContext(run, "cached", "p", "f")
        request = session_request(plan, TaskRun("fit", index, attempt=1), context, {})
        directory = self.root / "runs" / run
        (directory / "input").mkdir(parents=True, exist_ok=True)
        (directory / "out").mkdir(exist_ok=True)
        (directory / "-d").mkdir(exist_ok=True)
        (directory / "input" / "a").write_text(data)
        environ = {name: str(value) for name, value in request["environ"].items()}
        environ |= {"PATH": "/usr/bin:/bin", "BAI_IMAGE": image, "BAI_SESSION_ID": f"s{run}"}
        script = request["startup_command"].replace("/pipeline", str(self.root))
        environ["PIPELINE_DIRECTORY"] = str(directory)
        return subprocess.run(
            [self.shell, "-c", script], env=environ, check=False, capture_output=True, text=True
        )

    @property
    def executions(self) -> int:
        return len((self.root / "count").read_text().splitlines())


@pytest.fixture(params=["bash", "dash"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    (tmp_path / "fit.py").write_text("code")
    return Folder(tmp_path, str(shutil.which(request.param)))


def test_outputs_are_taken_from_an_earlier_run(folder: Folder) -> None:
    first = folder.run("1")
    assert (first.returncode, first.stderr) == (0, "")
    second = folder.run("2")
    assert (second.returncode, folder.executions) == (0, 1)
    assert second.stdout.splitlines()[-1] == CACHED_LINE
    assert (folder.root / "runs/2/out/ä b").read_text() == "data1\n"
    # The cached outputs are used again, because they do not depend on this parameter.
    assert folder.run("3", given={"label": "b"}).returncode == 0
    assert folder.executions == 1


@pytest.mark.parametrize(
    "change",
    [
        {"image": "python sha256:2"},
        {"data": "other"},
        {"given": {"epochs": 2}},
        {"tasks": TASK.replace("cat input", "cat -A input")},
        {"tasks": TASK + "  environ: {A: b}\n"},
    ],
)
def test_changes_run_the_command_again(folder: Folder, change: dict[str, object]) -> None:
    folder.run("1")
    assert folder.run("2", **change).returncode == 0  # type: ignore[arg-type]
    assert folder.executions == 2


def test_changed_file_and_changed_link_run_the_command_again(folder: Folder) -> None:
    folder.run("1")
    (folder.root / "fit.py").write_text("changed")
    folder.run("2")
    assert folder.executions == 2
    for run, target in (("3", "a"), ("4", "b"), ("5", "b")):
        (folder.root / "runs" / run / "input").mkdir(parents=True)
        (folder.root / "runs" / run / "input" / "link").symlink_to(target)
        (folder.root / "runs" / run / "input" / "b").write_text("data")
        folder.run(run)
    assert folder.executions == 4


def test_failed_tasks_are_not_cached(folder: Folder) -> None:
    failing = TASK.replace("echo x", "rm -r ./-d; echo x")
    for run in ("1", "2"):
        result = folder.run(run, tasks=failing)
        assert (result.returncode, folder.executions) == (1, int(run))
        assert "the output -d does not exist" in result.stderr


def test_full_cache_does_not_fail_the_task(folder: Folder) -> None:
    (folder.root / "cache").write_text("not a directory")
    result = folder.run("1")
    assert result.returncode == 0
    assert "could not be stored" in result.stderr


def test_oldest_entries_are_removed(folder: Folder) -> None:
    cache = folder.root / "cache" / "fit"
    for number in range(MAX_ENTRIES + 3):
        (cache / str(number) / "content").mkdir(parents=True)
        os.utime(cache / str(number), (number, number))
    assert folder.run("1").returncode == 0
    kept = {path.name for path in cache.iterdir()}
    assert len(kept) == MAX_ENTRIES
    assert {"3", "2", "1", "0"}.isdisjoint(kept) and "4" in kept
    folder.run("2")
    assert folder.executions == 1


def test_each_value_of_a_map_has_its_own_outputs(folder: Folder) -> None:
    mapped = TASK + "  for_each: {values: [a, b]}\n"
    for run, expected in (("1", 2), ("2", 2)):
        for index in (0, 1):
            assert folder.run(run, tasks=mapped, index=index).returncode == 0
        assert folder.executions == expected
