"""Responses of a manager that has just started and JIT-compiles the scheduler's code."""

from __future__ import annotations

import asyncio

import pytest

from bai_services.client import Client
from bai_services.core.errors import InsufficientResources
from bai_services.manager.cluster import agent_capacity
from bai_services.manager.scheduling import admission_checks, jit_warmup
from tests.api.sessions.test_sessions import wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that ends the simulated compilation.

    Until then, requests wait for the compilation for at most 0.05 s.
    """
    event = asyncio.Event()

    async def warm_up() -> None:
        await event.wait()

    monkeypatch.setattr(jit_warmup, "warm_up", warm_up)
    monkeypatch.setattr(admission_checks, "WARMUP_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(agent_capacity, "WARMUP_TIMEOUT_SECONDS", 0.05)
    return event


async def test_requests_are_answered_during_compilation_without_capacity_checks(
    compiled: asyncio.Event, api: Api, agent: FakeAgent, user: Client
) -> None:
    too_much = {"resources": {"cpu": "9", "mem": "1g"}}
    fits = await user.post("/sessions", {"name": "fits", "resources": {"cpu": "1"}})
    never = await user.post("/sessions", {"name": "never", **too_much})
    assert (fits["status"], never["status"]) == ("PENDING", "PENDING")
    offered = await user.get("/sessions/options")
    assert offered["presets"] and all(each["allocatable"] for each in offered["presets"])

    compiled.set()
    await wait_for_status(user, "fits", "SCHEDULED")
    assert (await user.get("/sessions/never"))["status"] == "PENDING"
    with pytest.raises(InsufficientResources, match="largest agent offers 8"):
        await user.post("/sessions", {"name": "never-either", **too_much})
    await user.delete("/sessions/never")
