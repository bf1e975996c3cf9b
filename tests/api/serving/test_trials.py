"""Trials of definitions: results, end, refusals, and isolation from gateways."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import BaiError, Forbidden, InvalidRequest, NotFound, QuotaExceeded
from bai_services.core.serving.records import MAX_LIVE_TRIALS, TRIALS_KEPT_FOR
from bai_services.core.sessions.lifecycle import Event
from bai_services.db.serving.trials import TrialStore
from bai_services.db.tables.sessions import kernels
from bai_services.manager.serving.replica_launch import ReplicaSecrets
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import KEY, Api

from .test_endpoints import SETTINGS, routes, run, server

HEALTH = {"path": "/", "start_seconds": 60}


async def begin(api: Api, user: Client, **settings: Any) -> str:
    await FakeAgent(api.agent).beat()
    body = {"settings": {**SETTINGS, "health": HEALTH, **settings}}
    made = await user.post("/endpoint-trials", body)
    assert (made["is_healthy"], made["state"]) == (None, "the session is starting")
    return str(made["id"])


async def step(api: Api, user: Client, trial: str) -> dict[str, Any]:
    trials = api.world.manager.serving.trials
    await trials.step()
    await trials.calls.finish()
    await trials.step()
    shown: dict[str, Any] = await user.get(f"/endpoint-trials/{trial}")
    return shown


@pytest.mark.both_databases
async def test_healthy_trial_ends_and_is_never_routed(api: Api) -> None:
    user = await api.client("user")
    trial = await begin(api, user)
    assert (await user.get(f"/sessions/{trial}"))["type"] == "inference"
    async with server() as (url, secrets):
        await run(api, trial, url)
        shown = await step(api, user, trial)
    assert (shown["is_healthy"], shown["state"]) == (True, "healthy after 0s")
    assert secrets == [f"token {ReplicaSecrets(KEY).of(trial)}"]
    assert (await routes(api))["endpoints"] == []
    assert (await user.get(f"/sessions/{trial}"))["status"] == "TERMINATED"
    store = TrialStore(api.world.manager.database)
    await store.clean_up(api.world.clock() - TRIALS_KEPT_FOR)
    assert (await user.get(f"/endpoint-trials/{trial}"))["is_healthy"]
    await store.clean_up(api.world.clock() + TRIALS_KEPT_FOR)
    with pytest.raises(NotFound):
        await user.get(f"/endpoint-trials/{trial}")


async def test_unhealthy_trial_has_until_its_limit(api: Api) -> None:
    user = await api.client("user")
    trial = await begin(api, user)
    async with server(lambda: 404) as (url, _):
        await run(api, trial, url)
        shown = await step(api, user, trial)
        assert shown["is_healthy"] is None
        assert shown["state_coded"]["code"] == "trial-no-path"
        api.world.clock.advance(seconds=60)
        shown = await step(api, user, trial)
    assert (shown["is_healthy"], shown["state_coded"]["code"]) == (False, "trial-no-path")


async def test_trial_names_a_command_that_is_not_found(api: Api) -> None:
    user = await api.client("user")
    trial = await begin(api, user)
    async with server() as (url, _):
        await run(api, trial, url)
    await api.world.manager.lifecycle.apply(trial, Event.FAILED, "exited", exit_code=127)
    shown = await step(api, user, trial)
    assert (shown["is_healthy"], shown["state_coded"]["code"]) == (False, "trial-command-not-found")


@pytest.mark.both_databases
async def test_output_of_a_command_that_ends_at_once_is_shown(api: Api) -> None:
    """The session of the trial never becomes RUNNING."""
    user, manager = await api.client("user"), api.world.manager
    trial = await begin(api, user)
    await manager.scheduling.scheduler.step()
    await manager.lifecycle.apply(trial, Event.DISPATCHED)
    await manager.lifecycle.apply(trial, Event.FAILED, "exited", exit_code=1)
    error = "ModuleNotFoundError: No module named 'vllm'"
    async with manager.database.write() as tx:
        log = f"2026-11-28T02:07:46.964654186Z {error}\n"
        await tx.execute(sa.update(kernels).values(log=log))
    shown = await step(api, user, trial)
    assert (shown["is_healthy"], shown["log"]) == (False, error)
    assert shown["state_coded"]["code"] == "trial-no-package"


async def test_trials_are_refused_or_ended_by_their_user(api: Api) -> None:
    user, other = await api.client("user"), await api.client("user2")
    trial = await begin(api, user)
    for client in (other, await api.client("admin")):
        with pytest.raises(NotFound):
            await client.get(f"/endpoint-trials/{trial}")
        with pytest.raises(NotFound):
            await client.delete(f"/endpoint-trials/{trial}")
    with pytest.raises(Forbidden):
        await (await api.client("monitor")).post("/endpoint-trials", {"settings": SETTINGS})
    with pytest.raises(InvalidRequest):
        await user.post("/endpoint-trials", {"definition": "models: []"})
    for _ in range(MAX_LIVE_TRIALS - 1):
        await begin(api, user)
    with pytest.raises(QuotaExceeded):
        await begin(api, user)
    shown = await user.delete(f"/endpoint-trials/{trial}")
    assert (shown["is_healthy"], shown["state"]) == (False, "stopped by user")
    await step(api, user, trial)
    assert (await user.get(f"/sessions/{trial}"))["status"] == "CANCELLED"
    # A trial whose session cannot be created ends at once.
    settings = {**SETTINGS, "request": {"resources": {"cpu": "9999", "mem": "1g"}}}
    shown = await user.post("/endpoint-trials", {"settings": settings})
    assert shown["is_healthy"] is False
    assert "cpu" in shown["state"]


async def test_killed_manager_leaves_no_trial(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    user, manager = await api.client("user"), api.world.manager

    async def killed(*args: Any, **fields: Any) -> Any:
        raise KeyError("killed before the session was created")

    with monkeypatch.context() as patched:
        patched.setattr(manager.sessions.sessions, "create", killed)
        with pytest.raises(BaiError, match="internal"):
            await user.post("/endpoint-trials", {"settings": SETTINGS})
    (row,) = await TrialStore(manager.database).live()
    assert (await step(api, user, row.id))["is_healthy"] is None
    api.world.clock.advance(seconds=61)
    shown = await step(api, user, row.id)
    assert (shown["is_healthy"], shown["state_coded"]["code"]) == (False, "trial-lost")
