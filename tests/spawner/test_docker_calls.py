"""The limit of simultaneous calls to Docker for each user."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import docker
import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from bai_services.engines.docker_calls import CallLimits, DockerCalls
from tests.testbed.wait import wait_until_async


class VersionHandler(RequestHandler):
    """Responds with the version of Docker's API; each client requests the version first."""

    def get(self) -> None:
        self.write({"ApiVersion": "1.44"})


@pytest.fixture
async def endpoint() -> AsyncIterator[str]:
    server = HTTPServer(Application([("/version", VersionHandler)]))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    yield f"tcp://127.0.0.1:{port}"
    server.stop()
    await server.close_all_connections()


async def test_cancelled_call_counts_until_its_thread_has_ended(endpoint: str) -> None:
    calls = DockerCalls(CallLimits(threads=2, calls_per_user=1, timeout_seconds=20))
    has_started, may_end = threading.Event(), threading.Event()
    steps: list[str] = []

    def hang(client: docker.APIClient) -> None:
        has_started.set()
        may_end.wait(20)
        steps.append("cancelled call")

    try:
        hanging = asyncio.create_task(calls.run(endpoint, "ann", hang))
        await wait_until_async(has_started.is_set, 20, "the start of the first call")
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        following = asyncio.create_task(
            calls.run(endpoint, "ann", lambda client: steps.append("next call"))
        )
        # A user who has reached the limit does not delay another user.
        await calls.run(endpoint, "bob", lambda client: steps.append("other user"))
        assert steps == ["other user"]
        may_end.set()
        await following
        assert steps == ["other user", "cancelled call", "next call"]
    finally:
        may_end.set()
        calls.close()
