"""Health checks of the replicas of many owners at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from bai_services.core.serving.definition import HealthCheck
from bai_services.core.serving.rollout import Phase
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.serving.replicas import ReplicaRow
from bai_services.manager.serving.probes import MAX_PER_OWNER, HealthProbes
from bai_services.manager.serving.replica_launch import ReplicaSecrets

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def replica(name: str, url: str) -> ReplicaRow:
    return ReplicaRow(
        id=name,
        created_at=NOW,
        endpoint_id="e",
        revision_id="r",
        phase=Phase.STARTING,
        url=url,
        changed_at=NOW,
        drained_by=[],
        reason=None,
        status=Status.RUNNING,
        started_at=NOW,
        status_info="",
        is_requeued_at_end=False,
    )


async def test_failed_check_of_a_new_replica_is_repeated() -> None:
    statuses = ["503 x", "503 x", "200 OK"]
    passed: asyncio.Queue[str] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {statuses.pop(0)}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async def note(row: ReplicaRow) -> None:
        passed.put_nowait(row.id)

    probes = HealthProbes(ReplicaSecrets(b"key"), note)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        probes.begin(replica("new", url), "one", HealthCheck(), repeats=2)
        async with asyncio.timeout(20):
            assert await passed.get() == "new"
        assert statuses == []
    finally:
        await probes.close()
        server.close()


async def test_checks_that_hang_do_not_delay_those_of_other_owners() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    passed: asyncio.Queue[str] = asyncio.Queue()

    async def note(row: ReplicaRow) -> None:
        passed.put_nowait(row.id)

    probes = HealthProbes(ReplicaSecrets(b"key"), note)
    health = HealthCheck(timeout_seconds=600)
    slow = await asyncio.start_server(hang, "127.0.0.1", 0)
    quick = await asyncio.start_server(answer, "127.0.0.1", 0)
    urls = [f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in (slow, quick)]
    try:
        for number in range(3 * MAX_PER_OWNER):
            probes.begin(replica(f"slow{number}", urls[0]), "one", health)
        probes.begin(replica("good", urls[1]), "other", health)
        async with asyncio.timeout(20):
            assert await passed.get() == "good"
    finally:
        await probes.close()
        slow.close()
        quick.close()
