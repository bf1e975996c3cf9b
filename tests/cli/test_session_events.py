"""Events of ``bai session events``."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bai_services.cli.sessions.live_output import session_events


async def lines_of(*lines: str) -> AsyncIterator[str]:
    for line in lines:
        yield line


async def test_events_without_a_session_are_omitted() -> None:
    stream = lines_of(
        "event: keepalive",
        "data: {}",
        "event: folder",
        'data: {"session_id": null}',
        "event: status",
        'data: {"session_id": "s1", "kind": "status"}',
    )
    assert [event["session_id"] async for event in session_events(stream)] == ["s1"]
