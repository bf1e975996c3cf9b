"""Clean-up after a failed test: removes only sessions and folders created since a given time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.e2e.sessions import checked, remove_created_since, start, stop, wait_for
from tests.hub import RunningHub

pytestmark = pytest.mark.e2e


def test_remove_created_since_removes_only_newer_sessions_and_folders(hub: RunningHub) -> None:
    rest = hub.rest("user")
    kept = start(rest, "before")
    folder = checked(rest.post("/vfolders", json={"name": "before"}), 201)
    since = datetime.now(UTC)
    with hub.rest("admin") as admin:
        for _ in range(2):
            left = start(rest, "since")
            checked(rest.post("/vfolders", json={"name": "since"}), 201)
            remove_created_since(admin, since)
            wait_for(rest, left["id"], "TERMINATED")
    rows = checked(rest.get("/vfolders"), 200)["items"]
    ready = {row["name"] for row in rows if row["status"] == "ready"}
    assert "before" in ready and "since" not in ready
    stop(rest, kept["id"])
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)
