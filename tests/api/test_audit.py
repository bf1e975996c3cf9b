"""Accesses by others, and values before and after, in the audit log."""

from __future__ import annotations

import json

import pytest

from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api


async def test_users_see_what_others_did_with_their_sessions_and_folders(api: Api) -> None:
    await FakeAgent(api.agent).beat()
    await api.world.manager.folders.vfolders.start()
    user, admin = await api.client("user"), await api.client("admin")
    session = await user.post("/sessions", {"name": "my-lab", "resources": {"cpu": 1, "mem": "1g"}})
    await user.post("/vfolders", {"name": "data"})
    await user.get(f"/sessions/{session['id']}")
    folder = (await user.get("/vfolders", name="data"))["items"][0]
    for _ in range(3):  # reads within 10 minutes have one entry
        await admin.get(f"/sessions/{session['id']}")
        await admin.get(f"/vfolders/{folder['id']}/files")
    api.world.clock.advance(minutes=11)
    await admin.get(f"/sessions/{session['id']}")
    # The session has no output yet; the attempt to read it is recorded.
    await admin.http.get(f"/sessions/{session['id']}/logs")
    await admin.patch(f"/sessions/{session['id']}", {"priority": 7})
    await admin.patch("/users/user", {"password": "another pass 1", "full_name": "U"})
    found = (await user.get("/audit-log/mine", sort="id", actor="admin"))["items"]
    assert [(e["actor"], e["action"], e["entity_name"]) for e in found] == [
        ("admin", "session.read", "my-lab"),
        ("admin", "vfolder.list-files", "data"),
        ("admin", "session.read", "my-lab"),
        ("admin", "session.read-log", "my-lab"),
        ("admin", "session.prioritize", "my-lab"),
        ("admin", "user.update", "user"),
    ]
    # Superadmins also see the address of the client.
    reads = (await admin.get("/audit-log", action="session.read"))["items"]
    assert [e["client_ip"] for e in reads] == ["127.0.0.1"] * 2
    assert found[4]["details"]["changes"]["priority"]["after"] == 7
    assert "another pass" not in json.dumps(found)
    other = await api.client("user2")
    assert (await other.get("/audit-log/mine", actor="admin"))["items"] == []


@pytest.mark.parametrize("after", ["x", "-1", "9" * 40])
async def test_invalid_position_is_rejected(api: Api, after: str) -> None:
    admin = await api.client("admin")
    response = await admin.http.get("/audit-log/verification", params={"after": after})
    assert response.status_code == 400
