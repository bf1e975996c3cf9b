"""Reports of an agent share requests while an earlier request is running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from bai_services.agent.link import MAX_BATCH_BYTES, Link
from bai_services.client import Token
from bai_services.service_client import ServiceClient
from tests.testbed.wait import wait_until_async


class Manager:
    """Responds to heartbeats and reports; the first report waits until ``release`` is set."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.max_reports: int | None = 100
        # The ids of the work items in each request.
        self.requests: list[list[str]] = []

    async def heartbeat(self, request: web.Request) -> web.Response:
        limit = {} if self.max_reports is None else {"max_reports": self.max_reports}
        return web.json_response({"interval_seconds": 5, **limit})

    async def report(self, request: web.Request) -> web.Response:
        self.requests.append([(await request.json())["work_id"]])
        await self.release.wait()
        return web.json_response({"is_removable": False})

    async def reports(self, request: web.Request) -> web.Response:
        ids = [report["work_id"] for report in (await request.json())["reports"]]
        self.requests.append(ids)
        return web.json_response({"results": [self._result(one) for one in ids]})

    def _result(self, work_id: str) -> dict[str, Any]:
        if work_id == "rejected":
            return {
                "is_removable": False,
                "error": {"error": "not-found", "message": "no such session", "details": {}},
            }
        return {"is_removable": work_id == "exit", "error": None}


@pytest.fixture
async def manager() -> Manager:
    return Manager()


@pytest.fixture
async def link(manager: Manager) -> AsyncIterator[Link]:
    app = web.Application(client_max_size=2**24)
    app.add_routes(
        [
            web.post("/api/v1/agents/a1/heartbeat", manager.heartbeat),
            web.post("/api/v1/agents/a1/reports", manager.report),
            web.post("/api/v1/agents/a1/bulk-reports", manager.reports),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with ServiceClient(f"http://127.0.0.1:{port}", Token("secret")) as client:
        yield Link(client, "a1")
    manager.release.set()
    await runner.cleanup()


async def deliver(
    manager: Manager, link: Link, *reports: dict[str, Any]
) -> list[asyncio.Task[bool]]:
    """Begin to send reports and return their tasks. The manager delays the first report."""
    await link.heartbeat({})
    tasks = [asyncio.create_task(link.deliver(report)) for report in reports]
    await wait_until_async(lambda: _is_first_received(manager), 10, "the first report")
    return tasks


async def _is_first_received(manager: Manager) -> bool:
    return bool(manager.requests)


def ids(*names: str) -> list[dict[str, Any]]:
    return [{"work_id": name} for name in names]


async def test_reports_that_wait_share_a_request(manager: Manager, link: Link) -> None:
    tasks = await deliver(manager, link, *ids("first", "launch", "rejected", "exit"))
    manager.release.set()
    assert await asyncio.gather(*tasks) == [False, False, False, True]
    assert manager.requests == [["first"], ["launch", "rejected", "exit"]]


async def test_manager_that_accepts_one_report_gets_one_in_each_request(
    manager: Manager, link: Link
) -> None:
    manager.max_reports = None
    tasks = await deliver(manager, link, *ids("first", "launch", "stop"))
    manager.release.set()
    assert await asyncio.gather(*tasks) == [False] * 3
    assert manager.requests == [["first"], ["launch"], ["stop"]]


async def test_requests_are_limited_in_number_and_size(manager: Manager, link: Link) -> None:
    manager.max_reports = 3
    large = {"work_id": "large", "log": "x" * MAX_BATCH_BYTES}
    reports = [*ids("first", "1", "2"), large, *ids("3", "4", "5", "6")]
    tasks = await deliver(manager, link, *reports)
    manager.release.set()
    await asyncio.gather(*tasks)
    assert manager.requests == [["first"], ["1", "2"], ["large"], ["3", "4", "5"], ["6"]]


async def test_cancelled_report_is_not_sent_and_does_not_delay_others(
    manager: Manager, link: Link
) -> None:
    tasks = await deliver(manager, link, *ids("first", "cancelled", "second", "third"))
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    # The report in the running request was sent; its task no longer waits for the result.
    tasks[0].cancel()
    assert await asyncio.gather(*tasks[2:]) == [False, False]
    assert manager.requests == [["first"], ["second", "third"]]
