"""Preemption on the real Hub: a batch session makes room, starts again and completes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.sessions import checked, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

# The first run saves its work when it receives SIGTERM; the second run ends at once.
COMMAND = (
    'echo "run $BAI_RESTART_COUNT"; trap "echo run 0 saved; exit 143" TERM; '
    'test "$BAI_RESTART_COUNT" = 1 || { sleep 600 & wait; }'
)


def _docker_environment(request: pytest.FixtureRequest) -> dict[str, str]:
    image = request.getfixturevalue("session_image")
    return {"DOCKER_HOST": request.getfixturevalue("docker_engine").host, "BAI_IMAGE": image}


@pytest.mark.parametrize(
    ("engine", "starts_on_agent"),
    [
        pytest.param("process", False, id="process engine, Hub server"),
        pytest.param("docker", True, id="Docker, by the agent", marks=pytest.mark.docker),
    ],
)
def test_preempted_batch_session_is_requeued_and_completes(
    own_hub: Callable[..., RunningHub],
    request: pytest.FixtureRequest,
    engine: str,
    starts_on_agent: bool,
) -> None:
    environment = {"BAI_AGENT_CPU": "1", "BAI_AGENT_MEM": "2g"}
    environment["BAI_AGENT_RUNS_BATCH"] = "1" if starts_on_agent else "0"
    if engine == "docker":
        environment |= _docker_environment(request)
    hub = own_hub(engine=engine, environment=environment).start()
    with hub.rest("admin") as admin:
        options = {"preemption": {"enabled": True, "grace": "1s"}}
        group = checked(admin.get("/resource-groups"), 200)["items"][0]["name"]
        checked(admin.patch(f"/resource-groups/{group}", json={"scheduler_opts": options}), 200)
    with hub.rest("user") as rest:
        spec = {"project": "default", "type": "batch", "resources": {"cpu": "1", "mem": "256m"}}
        low = {**spec, "name": "low1", "startup_command": COMMAND, "priority": 1}
        created = checked(rest.post("/sessions", json=low), 201)
        first = wait_for(rest, created["id"], "RUNNING")
        log_path = f"/sessions/{created['id']}/logs"
        wait_until(lambda: "run 0" in checked(rest.get(log_path), 200)["log"], 60, "the output")
        high = {**spec, "name": "high", "startup_command": "true", "priority": 10}
        urgent = checked(rest.post("/sessions", json=high), 201)
        assert wait_for(rest, urgent["id"], "TERMINATED")["result"] == "success"
        again = wait_for(rest, created["id"], "TERMINATED")
        assert (again["result"], again["restart_count"]) == ("success", 1)
        assert (again["url"], again["name"]) == (first["url"], first["name"])
        history = checked(rest.get(f"/sessions/{created['id']}/history"), 200)["items"]
        events = [change["event"] for change in history]
        assert events.count("preempted") == events.count("requeued") == 1
        assert events.count("started") == 2
        assert checked(rest.get("/allocations"), 200)["total"] == 0
        # The log has the output of both runs, with a line between them.
        log = [line for line in checked(rest.get(log_path), 200)["log"].splitlines() if line]
        outputs = [line for line in log if line.startswith(("run ", "-----"))]
        first_run, saved, line, *second_run = outputs
        assert (first_run, saved, second_run) == ("run 0", "run 0 saved", ["run 1"]), log
        assert line.startswith("----- attempt 1 ended at ")
        assert "priority" in line
        stream = rest.get(f"/sessions/{created['id']}/log-stream").text
        texts = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
        assert texts[0]["text"].splitlines() == log
