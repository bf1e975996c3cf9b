"""The agent process with managers of other versions of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from bai_services.core.cluster.protocol import PROTOCOL
from tests.testbed.wait import wait_until_async

from .conftest import AGENT_ID, launch

# The response of a manager of version 1.
RESPONSE_1 = {"deadline_seconds": 40, "interval_seconds": 1, "hub_api_url": "", "is_new": False}


@asynccontextmanager
async def manager(response: dict[str, Any]) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve the routes of an agent with fixed responses; yield the URL, and the heartbeats."""
    heartbeats: list[dict[str, Any]] = []

    class Heartbeat(RequestHandler):
        def post(self) -> None:
            heartbeats.append(json.loads(self.request.body))
            self.finish(response)

    class Work(RequestHandler):
        async def get(self) -> None:
            await asyncio.sleep(0.2)
            self.finish({"items": []})

    server = HTTPServer(
        Application([(r".*/heartbeat", Heartbeat), (r".*/work", Work)], log_function=lambda _: None)
    )
    socket, port = bind_unused_port()
    server.add_socket(socket)
    try:
        yield f"http://127.0.0.1:{port}", heartbeats
    finally:
        server.stop()
        await server.close_all_connections()


def environ(url: str, home: Path) -> dict[str, str]:
    (home / "token").write_text("secret")
    return {
        "BAI_MANAGER_URL": url,
        "BAI_AGENT_TOKEN_FILE": str(home / "token"),
        "BAI_AGENT_ID": AGENT_ID,
        "BAI_HOME": str(home),
    }


async def test_agent_works_with_a_manager_of_the_previous_version(agent_home: Path) -> None:
    async with manager(RESPONSE_1) as (url, heartbeats):
        process = launch(environ(url, agent_home), agent_home / "log")
        try:
            await wait_until_async(lambda: len(heartbeats) > 2, 30, "heartbeats")
            assert heartbeats[0]["protocol"] == PROTOCOL
            assert process.poll() is None
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, 20)
    assert heartbeats[-1]["is_leaving"] is True


async def test_agent_ends_with_a_remedy_if_the_manager_is_too_new(agent_home: Path) -> None:
    async with manager({**RESPONSE_1, "protocol": PROTOCOL + 2}) as (url, heartbeats):
        process = launch(environ(url, agent_home), agent_home / "log")
        code = await asyncio.to_thread(process.wait, 30)
    assert code == 2
    assert "upgrade this agent" in (agent_home / "log").read_text()
    # The agent sends nothing more, and does not sign off.
    assert len(heartbeats) == 1
