"""`bai admin config`, and `bai session logs --search` without the name of a session."""

from __future__ import annotations

import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import Event
from bai_services.db.sessions.store import SessionStore
from bai_services.db.tables.sessions import kernels
from tests.testbed.manager import Api

from .conftest import Bai


async def test_setting_is_set_and_unset(bai: Bai) -> None:
    done = await bai("admin", "config", "set", "BAI_TRASH_DAYS", "14", by="admin")
    assert done.stdout == "BAI_TRASH_DAYS is set to 14; it is 30 until the manager is restarted\n"
    listed = await bai("admin", "config", "list", "--changeable", "--json", by="admin")
    stored = {each["name"]: each["stored"] for each in listed.document["items"]}
    assert (stored["BAI_TRASH_DAYS"], stored["BAI_AUDIT_DAYS"]) == ("14", None)
    assert (await bai("admin", "config", "unset", "BAI_TRASH_DAYS", by="admin")).code == 0
    refused = await bai("admin", "config", "set", "BAI_KEY_FILE", "x", by="admin")
    assert (refused.code == 0, "environment" in refused.stderr) == (False, True)
    assert "BAI_KEY_FILE" in (await bai("admin", "config", "list", by="monitor")).stdout


async def test_settings_of_hub_and_agents_are_listed(api: Api, bai: Bai) -> None:
    settings = [
        {"name": "SessionServer.start_timeout", "value": "99", "default": "780", "origin": "file"},
        {"name": "SessionServer.hub_token_file", "origin": "environment"},
        {"name": "DockerEngine.threads", "value": "32", "default": "32", "origin": "default"},
    ]
    await api.hub.put("/component-settings/hub", {"settings": settings})
    listed = await bai("admin", "config", "reported", "--configured", by="monitor")
    assert [line.split() for line in listed.stdout.splitlines()[1:3]] == [
        ["hub", "SessionServer.hub_token_file", "-", "-", "environment"],
        ["hub", "SessionServer.start_timeout", "99", "780", "file"],
    ]
    assert "threads" not in listed.stdout
    none = await bai("admin", "config", "reported", "--component", "a-1", "--json", by="admin")
    assert none.document["items"] == []


async def test_search_in_the_logs_of_ended_sessions(api: Api, bai: Bai) -> None:
    user = await api.client("user")
    made = await user.post("/sessions", {"name": "my-lab", "resources": {"cpu": 1, "mem": "1g"}})
    database = api.world.manager.database
    await SessionStore(database).move(made["id"], Event.STOP_REQUESTED, api.world.clock())
    async with database.write() as tx:
        await tx.execute(sa.update(kernels).values(log="one\ntwo \x1b[31mred\n" + "two\n" * 9))
    found = await bai("session", "logs", "--search", "two", by="user")
    lines = found.stdout.splitlines()
    assert lines[0].startswith("my-lab (main1, ended ")
    assert (lines[2], lines[-1]) == ("  3: two", "  … 10 matching lines in total")
    assert "\x1b" not in found.stdout
    none = await bai("session", "logs", "--search", "three", by="user")
    assert (none.stdout, "contains the text (1 searched)" in none.stderr) == ("", True)
    assert (await bai("session", "logs", by="user")).code == 2
