"""Preemption on the real Hub: a batch session makes room, starts again and completes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.sessions import checked, wait_for
from tests.hub import RunningHub

pytestmark = pytest.mark.e2e

# The first run waits for SIGTERM; the second run ends at once.
COMMAND = 'test "$BAI_RESTART_COUNT" = 1 || sleep 600'


def test_preempted_batch_session_is_requeued_and_completes(
    own_hub: Callable[..., RunningHub],
) -> None:
    hub = own_hub(environment={"BAI_AGENT_CPU": "1", "BAI_AGENT_MEM": "2g"}).start()
    with hub.rest("admin") as admin:
        options = {"preemption": {"enabled": True, "grace": "1s"}}
        group = checked(admin.get("/resource-groups"), 200)["items"][0]["name"]
        checked(admin.patch(f"/resource-groups/{group}", json={"scheduler_opts": options}), 200)
    with hub.rest("user") as rest:
        spec = {"project": "default", "type": "batch", "resources": {"cpu": "1", "mem": "256m"}}
        low = {**spec, "name": "low1", "startup_command": COMMAND, "priority": 1}
        created = checked(rest.post("/sessions", json=low), 201)
        first = wait_for(rest, created["id"], "RUNNING")
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
