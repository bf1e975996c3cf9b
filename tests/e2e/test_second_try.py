"""The clean-up after a failed test: it removes only what was created since the test began."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.e2e.engines import checked, remove_made_since, start, stop, wait_for
from tests.hub import RunningHub

pytestmark = pytest.mark.e2e


def test_remove_made_since_removes_only_newer_sessions_and_folders(hub: RunningHub) -> None:
    rest = hub.rest("user")
    kept = start(rest, "made-before")
    folder = checked(rest.post("/vfolders", json={"name": "made-before"}), 201)
    since = datetime.now(UTC)
    with hub.rest("admin") as admin:
        for _ in range(2):
            left = start(rest, "made-since")
            checked(rest.post("/vfolders", json={"name": "made-since"}), 201)
            remove_made_since(admin, since)
            wait_for(rest, left["id"], "TERMINATED")
    rows = checked(rest.get("/vfolders"), 200)["items"]
    there = {row["name"] for row in rows if row["status"] == "ready"}
    assert "made-before" in there and "made-since" not in there
    stop(rest, kept["id"])
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)
