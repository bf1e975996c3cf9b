"""Traces of a real demo on the process engine: one connected trace for each start of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub import RunningHub, running_session
from tests.testbed.trace_receiver import ReceivedSpan, TraceReceiver, receiving_traces
from tests.testbed.wait import wait_until

pytestmark = pytest.mark.e2e

SECRET = "kept-private-4711"


@pytest.fixture(scope="module")
def receiver() -> Iterator[TraceReceiver]:
    with receiving_traces() as made:
        yield made


@pytest.fixture(scope="module")
def traced_hub(
    receiver: TraceReceiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningHub]:
    hub = RunningHub(tmp_path_factory.mktemp("traced"), environment=receiver.environment)
    try:
        yield hub.start()
    finally:
        hub.stop()


def spans_of_start(receiver: TraceReceiver, session_id: str) -> list[ReceivedSpan]:
    """Wait until the span of the start of a session is received; return its trace."""

    def trace() -> list[ReceivedSpan]:
        spans = receiver.spans()
        starts = [
            s
            for s in spans
            if s.name == "session start" and s.attributes["bai.session.id"] == session_id
        ]
        return [s for s in spans if starts and s.trace == starts[0].trace]

    def is_complete() -> list[ReceivedSpan] | None:
        found = trace()
        names = {s.name for s in found}
        return found if {"session start", "spawner start", "agent prepare"} <= names else None

    found = wait_until(is_complete, 30, "the spans of the start")
    assert found is not None
    # Wait for the spans of requests that end later, for example of the last report.
    parents = {s.parent for s in found} - {""}
    wait_until(lambda: parents <= {s.id for s in trace()}, 30, "the parents of all spans")
    return trace()


def test_start_is_one_trace_of_manager_hub_and_agent(
    traced_hub: RunningHub, receiver: TraceReceiver
) -> None:
    session = running_session(traced_hub, "user", secret_environ=["KEY"], environ={"KEY": SECRET})
    spans = spans_of_start(receiver, session["id"])
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(spans)
    roots = [span for span in spans if not span.parent]
    assert [root.name for root in roots] == ["POST /sessions"]

    def parents_of(name: str) -> list[str]:
        return sorted({by_id[s.parent].name for s in spans if s.name == name and s.parent})

    assert parents_of("session start") == ["POST /sessions"]
    for name in ("session queue", "scheduler pass", "agent prepare", "hub start"):
        assert parents_of(name) == ["session start"], name
    assert parents_of("spawner start") == ["hub start"]
    for name in ("start kernels", "wait until ready", "report the start"):
        assert parents_of(name) == ["spawner start"], name
    for name in ("check folders", "prepare image and network", "create home", "prepare devices"):
        assert parents_of(name) == ["agent prepare"], name
    assert parents_of("POST /sessions/{key}/launch") == ["spawner start"]
    assert parents_of("POST /sessions/{key}/started") == ["report the start"]
    assert parents_of("POST /agents/{key}/reports") == ["agent prepare"]
    assert {span.service for span in spans} == {"bai-manager", "bai-jupyterhub", "bai-agent"}
    assert not any(span.is_error for span in spans)
    start = next(span for span in spans if span.name == "session start")
    assert start.attributes["bai.session.status"] == "RUNNING"
    queue = next(span for span in spans if span.name == "session queue")
    assert start.starts_at == queue.starts_at <= queue.ends_at <= start.ends_at


def test_start_in_the_browser_begins_at_the_spawner(
    traced_hub: RunningHub, receiver: TraceReceiver
) -> None:
    with traced_hub.rest("user2") as rest:
        forged = f"00-{'a' * 32}-{'b' * 16}-01"
        headers = {"Authorization": rest.headers["Authorization"], "traceparent": forged}
        body = {"resources": {"cpu": "1", "mem": "512m"}, "project": "default"}
        started = rest.post(
            f"{traced_hub.url}/hub/api/users/user2/servers/mine", json=body, headers=headers
        )
        assert started.status_code in (201, 202), started.text
        key = rest.get("/sessions/mine").json()["id"]
        spans = spans_of_start(receiver, key)
    assert spans[0].trace != "a" * 32
    by_id = {span.id: span for span in spans}
    (root,) = [span for span in spans if not span.parent]
    assert (root.name, root.service) == ("spawner start", "bai-jupyterhub")
    (created,) = [span for span in spans if span.name == "POST /sessions"]
    assert by_id[created.parent] is root
    (waited,) = [span for span in spans if span.name == "wait until prepared"]
    assert by_id[waited.parent] is root
    assert {span.service for span in spans} == {"bai-manager", "bai-jupyterhub", "bai-agent"}


def test_no_secret_or_name_of_a_user_is_sent(
    traced_hub: RunningHub, receiver: TraceReceiver
) -> None:
    secrets = [SECRET, traced_hub.password]
    secrets += [path.read_text().strip() for path in (traced_hub.home / "secrets").iterdir()]
    with traced_hub.rest("user") as rest:
        secrets.append(rest.headers["Authorization"].split()[1])
        user = rest.get("/me").json()
    bodies = b"".join(receiver.bodies)
    assert b"session start" in bodies
    assert [secret for secret in secrets if secret.encode() in bodies] == []
    # The name "user" is also a role and part of routes, so compare whole values.
    allowed = {"bai.role"}
    names = {user["username"], user["email"], "user2", "mine"}
    for span in receiver.spans():
        values = {str(v) for name, v in span.attributes.items() if name not in allowed}
        assert not values & names
        assert user["email"] not in span.message
