"""A running session is resized on each engine, and keeps its processes."""

from __future__ import annotations

import pytest

from tests.e2e.sessions import checked, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

HOLD = "x = bytearray(200 << 20); print('ready', flush=True); import time; time.sleep(600)"


def test_running_session_is_resized_and_keeps_its_memory(any_hub: RunningHub) -> None:
    job = {
        "name": "e2e-resize",
        "type": "batch",
        "project": "default",
        "startup_command": f'python3 -c "{HOLD}"',
        "resources": {"cpu": "1", "mem": "512m"},
    }
    with any_hub.rest("user") as rest:
        session = checked(rest.post("/sessions", json=job), 201)
        wait_for(rest, session["id"], "RUNNING")
        path = f"/sessions/{session['id']}"
        sizes = {"resources": {"cpu": "2", "mem": "1g"}}
        resized = checked(rest.post(f"{path}/resize", json=sizes), 200)
        assert resized["resize"]["state"] == "applied"
        assert resized["requested"] == sizes["resources"]

        def uses_memory() -> bool:
            used = checked(rest.get(path), 200)["usage"].get("mem_bytes", 0)
            return bool(used > 200 << 20)

        wait_until(uses_memory, 60, "the memory in use")
        small = {"resources": {"mem": "128m"}}
        refused = checked(rest.post(f"{path}/resize", json=small), 409)
        assert "of memory, more than mem=128m" in refused["message"]
        now = checked(rest.get(path), 200)
        assert (now["status"], now["requested"]["mem"]) == ("RUNNING", "1g")
        checked(rest.delete(path), 202)
