"""The output of a session: lines, search, download and stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from bai_services.client import Client
from bai_services.core import errors
from bai_services.manager.sessions.logs import MAX_FOLLOWED_LOGS
from tests.api.sessions.test_sessions import QUARTER, create_running_session
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

AT = "2026-05-01T12:00:00.123456789Z "


class LogAgent:
    """An agent that responds to each log request with the current output."""

    def __init__(self, agent: FakeAgent) -> None:
        self.text = ""
        self._agent = agent
        self._task = asyncio.create_task(self._respond())

    async def _respond(self) -> None:
        while True:
            for item in await self._agent.work(5):
                if item["kind"] == "logs":
                    await self._agent.report(item, "done", log=self.text)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.fixture
async def session(api: Api, agent: FakeAgent) -> dict[str, Any]:
    return await create_running_session(api, agent, "lab1")


@pytest.fixture
async def log_agent(agent: FakeAgent, session: dict[str, Any]) -> AsyncIterator[LogAgent]:
    made = LogAgent(agent)
    yield made
    await made.stop()


async def test_log_is_limited_to_last_lines_and_to_matches(
    user: Client, session: dict[str, Any], log_agent: LogAgent
) -> None:
    log_agent.text = f"{AT}Epoch 1\n{AT}loss .5\n{AT}epoch 2\n"
    path = f"/sessions/{session['id']}/logs"
    assert (await user.get(path))["log"] == "Epoch 1\nloss .5\nepoch 2\n"
    timed = await user.get(path, times="true", lines="1")
    assert (timed["log"], timed["has_times"]) == (f"{AT}epoch 2\n", True)
    searched = await user.get(path, search="EPOCH", lines="1")
    assert searched["matches"] == [{"number": 3, "text": "epoch 2"}]
    assert (searched["log"], searched["match_count"]) == ("epoch 2\n", 2)
    too_long = ("100001", "0000000019999999", "1" * 5000)
    for wrong in ({"lines": "0"}, {"lines": "x"}, {"lines": "١"}, {"search": "x" * 201}) + tuple(
        {"lines": text} for text in too_long
    ):
        with pytest.raises(errors.InvalidRequest):
            await user.get(path, **wrong)
    with pytest.raises(errors.NotFound, match="it has main1"):
        await user.get(path, kernel="sub9")


async def test_log_file_is_a_download(
    user: Client, session: dict[str, Any], log_agent: LogAgent
) -> None:
    log_agent.text = "<script>\n"
    answer = await user.send("GET", f"/sessions/{session['id']}/log-file")
    assert answer.text == "<script>\n"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
    assert "sandbox" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("query", "prefix", "stored"),
    [
        ("", "", AT),
        ("?times=true", AT, AT),
        # The stored log of an ended kernel may have no timestamps, in contrast to the live log.
        ("?times=true", AT, ""),
    ],
)
async def test_log_stream_ends_with_the_session(
    api: Api, session: dict[str, Any], log_agent: LogAgent, query: str, prefix: str, stored: str
) -> None:
    log_agent.text = f"{AT}one\n"
    key = f"/sessions/{session['id']}"
    token = {"Authorization": "Bearer hub-secret"}
    pieces: list[str] = []
    async with (
        httpx.AsyncClient(base_url=f"{api.url}/api/v1", headers=token, timeout=60) as client,
        client.stream("GET", f"{key}/log-stream{query}") as answer,
    ):
        assert answer.headers["Content-Type"] == "text/event-stream"
        event = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            if line.startswith("data: ") and event == "log":
                pieces.append(json.loads(line.removeprefix("data: "))["text"])
                if len(pieces) == 1:
                    log_agent.text += f"{AT}two\n"
                if len(pieces) == 2:
                    facts = {
                        "exit_code": 0,
                        "reason": "exited",
                        "log": log_agent.text.replace(AT, stored) + f"{stored}last\n",
                    }
                    await api.hub.post(f"{key}/exited", facts)
    expected = [f"{prefix}one\n", f"{prefix}two\n", f"{stored if query else ''}last\n"]
    assert (pieces, event) == (expected, "end")


async def test_log_stream_of_a_pending_session_ends_with_the_session(
    api: Api, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "pending", "resources": QUARTER})
    key = f"/sessions/{session['id']}"
    pause_count, event = 0, ""
    async with (
        httpx.AsyncClient(
            base_url=f"{api.url}/api/v1",
            headers={"Authorization": "Bearer hub-secret"},
            timeout=60,
        ) as client,
        client.stream("GET", f"{key}/log-stream") as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            if line.startswith(": "):
                pause_count += 1
                if pause_count == 2:
                    await user.delete(key)
    assert pause_count >= 2
    assert event == "end"


async def test_number_of_logs_that_a_user_follows_is_limited(
    api: Api, user: Client, session: dict[str, Any], log_agent: LogAgent
) -> None:
    path = f"/sessions/{session['id']}/log-stream"
    async with AsyncExitStack() as streams:
        for _ in range(MAX_FOLLOWED_LOGS):
            await streams.enter_async_context(user.stream(path))
        with pytest.raises(errors.RateLimited, match="close one of them first"):
            async with user.stream(path):
                pass
        # The limit is per user.
        async with (await api.client("admin")).stream(path):
            pass

    async def can_follow() -> bool:
        try:
            async with user.stream(path):
                return True
        except errors.RateLimited:
            return False

    await wait_until_async(can_follow, 15, "the closed streams to stop counting")


async def test_logs_of_another_user_are_not_found(
    api: Api, session: dict[str, Any], log_agent: LogAgent
) -> None:
    other = await api.client("user2")
    for path in ("logs", "log-file", "log-stream"):
        with pytest.raises(errors.NotFound):
            await other.get(f"/sessions/{session['id']}/{path}")
