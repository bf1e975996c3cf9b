"""Triggers: signed calls of other services run a pipeline, once for each call."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from bai_services.client import Client
from bai_services.core.errors import AlreadyExists, BaiError, Forbidden, QuotaExceeded
from bai_services.core.pipelines.triggers import MAX_CALL_BYTES
from bai_services.core.sessions.callbacks import SIGNATURE_HEADER, TIMESTAMP_HEADER, signature
from tests.testbed.manager import Api

TEXT = """\
version: 1
name: train
parameters: [{name: epochs, type: integer, default: 1}]
tasks:
- {name: check, kind: approval}
"""


class Triggered:
    """A pipeline of ``user`` with a trigger."""

    def __init__(self, api: Api, user: Client, made: dict[str, Any]) -> None:
        self.api = api
        self.user = user
        self.id = made["id"]
        self.secret = made["secret"]

    @property
    def path(self) -> str:
        return f"/pipeline-triggers/{self.id}"

    def signed(self, body: bytes, secret: str = "") -> dict[str, str]:
        timestamp = int(self.api.world.clock().timestamp())
        return {
            TIMESTAMP_HEADER: str(timestamp),
            SIGNATURE_HEADER: signature(secret or self.secret, timestamp, body),
        }

    async def post(self, body: bytes, headers: dict[str, str]) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            url = f"{self.api.url}/api/v1{self.path}/calls"
            return await client.post(url, content=body, headers=headers)

    async def call(self, secret: str = "", **parameters: Any) -> httpx.Response:
        body = json.dumps({"parameters": parameters}).encode()
        return await self.post(body, self.signed(body, secret))

    async def runs(self) -> list[dict[str, Any]]:
        return list((await self.user.get("/pipeline-runs"))["items"])


@pytest.fixture
async def triggered(api: Api) -> Triggered:
    await api.world.manager.folders.start()
    user = await api.client("user")
    await user.post("/pipelines", {"definition": TEXT})
    made = await user.post("/pipeline-triggers", {"pipeline": "train", "name": "push"})
    return Triggered(api, user, dict(made))


async def test_signed_call_runs_the_pipeline(triggered: Triggered) -> None:
    response = await triggered.call(epochs=7)
    assert response.status_code == 202
    (run,) = await triggered.runs()
    assert response.json() == {"run": run["id"], "is_new": True}
    assert (run["owner"], run["cause"]) == ("user", "trigger push")
    assert run["parameters"] == {"epochs": 7}
    found = await triggered.user.get(triggered.path)
    assert (found["last_run_id"], found["last_message"]) == (run["id"], "")
    assert "secret" not in found


@pytest.mark.both_databases
async def test_replayed_call_creates_no_second_run(triggered: Triggered) -> None:
    body = b"{}"
    headers = triggered.signed(body)
    first = (await triggered.post(body, headers)).json()
    triggered.api.world.clock.advance(seconds=60)
    second = (await triggered.post(body, headers)).json()
    assert (first["is_new"], second["is_new"]) == (True, False)
    assert first["run"] == second["run"]
    triggered.api.world.clock.advance(seconds=300)
    assert (await triggered.post(body, headers)).status_code == 401
    assert len(await triggered.runs()) == 1


async def test_calls_without_a_valid_signature_are_refused(triggered: Triggered) -> None:
    wrong = await triggered.call(secret="other")
    unsigned = await triggered.post(b"{}", {})
    trigger_id, triggered.id = triggered.id, "unknown"
    unknown = await triggered.call()
    triggered.id = trigger_id
    assert {wrong.status_code, unsigned.status_code, unknown.status_code} == {401}
    # The responses are equal, so that a caller cannot learn whether a trigger exists.
    assert wrong.json() == unsigned.json() == unknown.json()
    large = b" " * MAX_CALL_BYTES + b"{}"
    assert (await triggered.post(large, triggered.signed(large))).status_code == 413
    assert await triggered.runs() == []


async def test_refused_call_is_explained(triggered: Triggered) -> None:
    response = await triggered.call(speed=1)
    assert response.status_code == 400
    assert "no parameter" in (await triggered.user.get(triggered.path))["last_message"]


async def test_new_secret_replaces_the_old_one(triggered: Triggered) -> None:
    renewed = await triggered.user.post(f"{triggered.path}/secret", {})
    assert (await triggered.call()).status_code == 401
    assert (await triggered.call(secret=renewed["secret"])).status_code == 202


async def test_administrators_only_disable_and_delete(triggered: Triggered) -> None:
    admin = await triggered.api.client("admin")
    other = await triggered.api.client("user2")
    with pytest.raises(Forbidden):
        await admin.post(f"{triggered.path}/secret", {})
    with pytest.raises(BaiError, match="no trigger"):
        await other.patch(triggered.path, {"is_enabled": False})
    await admin.patch(triggered.path, {"is_enabled": False})
    assert (await triggered.call()).status_code == 409
    await triggered.user.patch(triggered.path, {"is_enabled": True})
    assert (await triggered.call()).status_code == 202
    await admin.delete(triggered.path)
    assert (await triggered.call()).status_code == 401


async def test_number_of_triggers_is_limited(
    triggered: Triggered, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"pipeline": "train", "name": "push"}
    with pytest.raises(AlreadyExists):
        await triggered.user.post("/pipeline-triggers", body)
    monkeypatch.setattr("bai_services.db.pipelines.triggers.MAX_TRIGGERS_PER_PIPELINE", 1)
    with pytest.raises(QuotaExceeded):
        await triggered.user.post("/pipeline-triggers", {**body, "name": "other"})


@pytest.mark.both_databases
async def test_number_of_file_triggers_of_a_user_is_limited(
    triggered: Triggered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bai_services.db.pipelines.triggers.MAX_FILE_TRIGGERS_PER_USER", 1)
    user = triggered.user
    await user.post("/vfolders", {"name": "inbox"})
    await user.post("/pipelines", {"definition": TEXT.replace("train", "second")})
    body = {"name": "new", "kind": "file", "folder": "inbox", "pattern": "*.csv"}
    made = await user.post("/pipeline-triggers", {**body, "pipeline": "train"})
    with pytest.raises(QuotaExceeded, match="you have 1 triggers of files"):
        await user.post("/pipeline-triggers", {**body, "pipeline": "second"})
    # Triggers of other kinds are not limited.
    await user.post("/pipeline-triggers", {"pipeline": "second", "name": "push"})
    await user.delete(f"/pipeline-triggers/{made['id']}")
    await user.post("/pipeline-triggers", {**body, "pipeline": "second"})
