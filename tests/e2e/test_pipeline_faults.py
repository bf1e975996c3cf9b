"""A pipeline with Docker whose agent and manager are killed while its tasks run."""

from __future__ import annotations

from collections import Counter

import httpx
import pytest

from tests.e2e.sessions import JSON, checked
from tests.e2e.test_pipeline_templates import run
from tests.hub import Component, RunningHub
from tests.testbed.docker_engine import DockerEngine
from tests.testbed.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

RUN_SECONDS = 240
# Each task records its runs in a file; the mapped tasks wait until the test creates a file.
DEFINITION = """\
version: 1
name: killed-on-docker
defaults: {resources: {cpu: 1, mem: 256m}}
tasks:
- name: each
  for_each: {values: [a, b, c]}
  command: |
    echo "$PIPELINE_ITEM" >> /pipeline/ran.txt
    until [ -e /pipeline/continue ]; do sleep 0.2; done
- {name: last, command: 'echo last >> /pipeline/ran.txt', needs: [each]}
"""


def statuses(rest: httpx.Client, key: str) -> list[str]:
    detail = checked(rest.get(f"/pipeline-runs/{key}"), 200)
    return [each["status"] for each in detail["task_runs"] if each["task"] == "each"]


def kill(hub: RunningHub, component: Component) -> None:
    hub.kill(component)
    wait_until(hub.is_up, RUN_SECONDS, f"the demo after the kill of its {component}")


def test_kills_neither_lose_nor_repeat_tasks(
    docker_hub: RunningHub, docker_engine: DockerEngine
) -> None:
    hub, rest = docker_hub, docker_hub.rest("user2")
    key = run(rest, DEFINITION)
    pipeline = checked(rest.get("/pipelines/killed-on-docker"), 200)
    content = f"/vfolders/{pipeline['folder']}/content"
    try:
        wait_until(lambda: statuses(rest, key) == ["running"] * 3, RUN_SECONDS, "the tasks")
        detail = checked(rest.get(f"/pipeline-runs/{key}"), 200)
        labels = [f"bai.session-id={each['session']}" for each in detail["task_runs"][:3]]

        def ids() -> list[str]:
            containers = docker_engine.client.containers
            return [
                each.id for label in labels for each in containers.list(filters={"label": label})
            ]

        before = ids()
        assert len(before) == 3
        hub.kill("agent")
        # The containers keep running, and later end, while their agent does not run.
        assert ids() == before
        checked(rest.put(content, params={"path": "continue"}, content=b""), 200)
        wait_until(lambda: ids() == [], RUN_SECONDS, "the end of the containers")
        kill(hub, "manager")
        kill(hub, "agent")

        def ended() -> JSON | None:
            found: JSON = checked(rest.get(f"/pipeline-runs/{key}"), 200)
            return found if found["run"]["status"] not in ("waiting", "running") else None

        found = wait_until(ended, RUN_SECONDS, "the end of the run")
        assert found is not None
        assert found["run"]["status"] == "succeeded", found
        assert [each["attempt"] for each in found["task_runs"]] == [1] * 4
        noted = rest.get(content, params={"path": "ran.txt"}).text.split()
        assert Counter(noted) == Counter(["a", "b", "c", "last"])
    finally:
        rest.delete(f"/pipeline-runs/{key}")
        rest.delete("/pipelines/killed-on-docker")
        rest.delete(f"/vfolders/{pipeline['folder']}")
