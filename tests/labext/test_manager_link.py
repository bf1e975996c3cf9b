"""Requests of a session's panel to a real manager."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import bai_labext.manager_link
from bai_labext.manager_link import ManagerLink
from bai_services.core.accounts.roles import SESSION_SCOPE
from bai_services.core.errors import Conflict
from bai_services.db.tables.folders import vfolders
from bai_services.db.tables.sessions import sessions as sessions_table
from tests.testbed.fake_hub import manager_with_hub
from tests.testbed.manager import Api, MovableClock, known_world, serving

TOKEN = "token-of-the-session"


@pytest.fixture
async def api(demo_database_url: str, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Api]:
    async with manager_with_hub(demo_database_url, tmp_path, clock) as (hub, manager):
        scopes = [f"{SESSION_SCOPE}!server=user/lab"]
        hub.tokens[TOKEN] = {"kind": "user", "name": "user", "scopes": scopes}
        await manager.folders.vfolders.start()
        async with serving(await known_world(manager, clock)) as api:
            yield api


async def create_session(api: Api, name: str) -> dict[str, Any]:
    spec = {"name": name, "resources": {"cpu": "1", "mem": "512m"}}
    return dict(await (await api.client("user")).post("/sessions", spec))


@pytest.fixture
async def link(api: Api) -> AsyncIterator[ManagerLink]:
    """The link of a pending session of *user*."""
    session = await create_session(api, "this-one")
    environ = {"BAI_SESSION_ID": session["id"], "BAI_MANAGER_URL": api.url}
    made = ManagerLink({**environ, "JUPYTERHUB_API_TOKEN": TOKEN})
    yield made
    await vars(made)["_client"].close()


async def test_all_folders_are_returned(api: Api, link: ManagerLink) -> None:
    user = await api.client("user")
    folder = await user.post("/vfolders", {"name": "a"})
    async with api.world.manager.database.write() as tx:
        found = await tx.execute(sa.select(vfolders).where(vfolders.c.id == folder["id"]))
        row = found.mappings().one()
        names = [f"copy-{number}" for number in range(600)]
        copies = [{**row, "id": name, "name": name, "live_name": name} for name in names]
        await tx.execute(vfolders.insert(), copies)
    folders = await link.folders()
    assert (len(folders["items"]), folders["total"]) == (601, 601)


async def test_pending_sessions_do_not_displace_others(
    api: Api, link: ManagerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bai_labext.manager_link, "MAX_SESSIONS", 3)
    running = (await create_session(api, "running"))["id"]
    async with api.world.manager.database.write() as tx:
        is_running = sessions_table.c.id == running
        await tx.execute(sa.update(sessions_table).where(is_running).values(status="RUNNING"))
    for number in range(5):
        await create_session(api, f"pending-{number}")
    sessions = await link.sessions()
    assert "running" in [item["name"] for item in sessions["items"]]
    assert (len(sessions["items"]), sessions["total"]) == (3, 6)


async def test_session_can_be_kept_alive_only_while_it_runs(link: ManagerLink) -> None:
    session = await link.session()
    assert (session["idle_checks"], session["preemption"]) == ([], None)
    assert session["end_rule"] is None
    with pytest.raises(Conflict, match="only running sessions are judged"):
        await link.keep_alive()
