"""Secret environment variables of sessions."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core import errors
from bai_services.db.tables.sessions import sessions
from bai_services.manager.sessions.requests.secret_environ import SECRET_NAMES
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = {"cpu": "1", "mem": "1g"}
SECRET = "s3cret-value"


async def test_secret_variable_is_only_in_the_launch_plan(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    environ = {"TOKEN": SECRET, "SEED": "1"}
    spec = {"name": "lab1", "resources": SMALL, "environ": environ, "secret_environ": ["TOKEN"]}
    session = await user.post("/sessions", spec)
    key = f"/sessions/{session['id']}"
    assert session["environ"] == {"TOKEN": "********", "SEED": "1"}
    assert session["secret_environ"] == ["TOKEN"]
    for path in (key, "/sessions", f"{key}/history"):
        assert SECRET not in json.dumps(await user.get(path)), path
    async with api.world.manager.database.read() as tx:
        row = (await tx.execute(sa.select(sessions))).mappings().one()
    assert SECRET not in repr(dict(row))
    # An identical request returns the same session. A request with another secret is a conflict.
    assert (await user.post("/sessions", spec))["id"] == session["id"]
    with pytest.raises(errors.AlreadyExists):
        await user.post("/sessions", {**spec, "environ": {**environ, "TOKEN": "other"}})
    await user.get(key, wait="SCHEDULED", timeout="60", timeout_seconds=70)
    await agent.prepare()
    await user.get(key, wait="PREPARED", timeout="60", timeout_seconds=70)
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    plan = await api.hub.post(f"{key}/launch", where)
    assert plan["environ"]["TOKEN"] == SECRET and plan["environ"]["SEED"] == "1"
    assert SECRET_NAMES not in plan["environ"]


async def test_invalid_secret_environ_is_rejected(agent: FakeAgent, user: Client) -> None:
    with pytest.raises(errors.InvalidRequest, match="which is missing in environ"):
        await user.post(
            "/sessions", {"name": "lab1", "resources": SMALL, "secret_environ": ["TOKEN"]}
        )
    request = {"environ": {"TOKEN": SECRET}, "secret_environ": ["TOKEN"]}
    with pytest.raises(errors.InvalidRequest, match="a template cannot contain secret variables"):
        await user.post("/session-templates", {"name": "mine", "request": request})
