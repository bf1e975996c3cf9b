"""Spans of requests and of starts of sessions, from a manager in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from bai_services import tracing
from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import AGENT_TOKEN, Api
from tests.testbed.recorded_spans import RecordedSpans, recording_spans

from .sessions.test_sessions import wait_for_status

CONTEXT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def spans() -> Iterator[RecordedSpans]:
    with recording_spans() as recorded:
        yield recorded


@pytest.fixture
async def http(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    """A client without credentials: each test sends the token of a component as a header."""
    async with httpx.AsyncClient(base_url=f"{api.url}/api/v1") as client:
        yield client


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return format(span.context.trace_id, "032x")


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return format(span.context.span_id, "016x")


def parent_of(span: ReadableSpan) -> str:
    return "" if span.parent is None else format(span.parent.span_id, "016x")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_request_has_route_status_and_role_but_no_names(
    spans: RecordedSpans, user: Client
) -> None:
    await user.get("/sessions", name__contains="my-private-name")
    with pytest.raises(errors.NotFound):
        await user.get("/sessions/my-private-name")
    found = spans.only("GET /sessions")
    assert dict(found.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/sessions",
        "http.response.status_code": 200,
        "bai.role": "user",
    }
    missing = spans.only("GET /sessions/{key}")
    assert (missing.attributes or {})["http.response.status_code"] == 404
    assert (missing.attributes or {})["error.type"] == "not-found"
    # The error of a caller is not an error of the server.
    assert missing.status.status_code is StatusCode.UNSET
    assert "private" not in found.to_json() + missing.to_json()


async def test_only_components_choose_the_trace_of_a_request(
    spans: RecordedSpans, api: Api, http: httpx.AsyncClient, agent: FakeAgent
) -> None:
    headers = {tracing.HEADER: CONTEXT}
    await http.get("/health", headers=headers)
    assert trace_of(spans.only("GET /health")) != "a" * 32
    poll = f"/agents/{agent.id}/reports"
    report = {"work_id": "x", "kind": "remove", "state": "done", "kernel_id": "k"}
    sent = bearer(AGENT_TOKEN)
    assert (await http.post(poll, json=report, headers=sent)).status_code == 200
    # Requests that components send repeatedly have no span unless they belong to a trace.
    assert spans.named("POST /agents/{key}/reports") == []
    assert spans.named("POST /agents/{key}/heartbeat") == []
    await http.post(poll, json=report, headers={**sent, tracing.HEADER: "garbage"})
    assert spans.named("POST /agents/{key}/reports") == []
    await http.post(poll, json=report, headers={**sent, **headers})
    span = spans.only("POST /agents/{key}/reports")
    assert (trace_of(span), parent_of(span)) == ("a" * 32, "b" * 16)


async def create(spans: RecordedSpans, agent: FakeAgent, user: Client) -> dict[str, Any]:
    """Create a session; return the work item of its preparation."""
    await user.post("/sessions", {"name": "lab1"})
    return (await agent.work(5))[0]


async def test_failed_start_has_the_reason_without_the_name_of_its_owner(
    spans: RecordedSpans, agent: FakeAgent, user: Client
) -> None:
    item = await create(spans, agent, user)
    message = "the folder of user is not on a1; token=abcdef"
    await agent.report(item, "failed", error={"code": "not-found", "message": message})
    await wait_for_status(user, item["session_id"], "ERROR")
    start = spans.only("session start")
    assert start.status.status_code is StatusCode.ERROR
    assert start.status.description == "the folder of [user] is not on a1; [removed]"
    assert (start.attributes or {})["bai.session.status"] == "ERROR"
    created = spans.only("POST /sessions")
    assert parent_of(start) == id_of(created)
    # The work item contains the trace context of the start.
    assert item[tracing.HEADER].startswith(f"00-{trace_of(created)}-{id_of(start)}-")
    for name in ("session queue", "scheduler pass"):
        assert parent_of(spans.only(name)) == id_of(start)


async def test_output_of_a_bootstrap_script_is_not_recorded(
    spans: RecordedSpans, api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await user.post("/sessions", {"name": "lab1"})
    await agent.prepare()
    where = {"user": "user", "server": session["hub_server"]}
    await api.hub.post(f"/sessions/{session['id']}/launch", where)
    end = {"exit_code": 190, "reason_code": "bootstrap-failed", "reason": "printed secret"}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    await wait_for_status(user, session["id"], "ERROR")
    assert spans.only("session start").status.description == "a bootstrap script failed"


async def test_cancelled_start_is_not_an_error(
    spans: RecordedSpans, agent: FakeAgent, user: Client
) -> None:
    item = await create(spans, agent, user)
    await user.delete(f"/sessions/{item['session_id']}")
    start = spans.only("session start")
    assert start.status.status_code is StatusCode.UNSET
    assert (start.attributes or {})["bai.session.status"] == "CANCELLED"


async def test_work_has_no_context_while_tracing_is_off(agent: FakeAgent, user: Client) -> None:
    await user.post("/sessions", {"name": "lab1"})
    (item, *_) = await agent.work(5)
    assert tracing.HEADER not in item
