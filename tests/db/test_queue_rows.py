"""The queue snapshot contains CUDA versions, device links, agents to avoid and dependencies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from bai_services.core.scheduling.queue import run_pass
from bai_services.core.sessions.lifecycle import Event, Result, Status
from bai_services.db.scheduling import queue_rows
from bai_services.db.scheduling.queue import Touched
from bai_services.db.tables import cluster, sessions

from .world import NOW, World, make_world


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = await make_world(database_url)
    yield made
    await made.close()


async def test_snapshot_reads_cuda_version_and_links(world: World) -> None:
    facts = {"driver": "570.1", "cuda": "12.8", "links": {"a1-g1": 2, "a1-g0": 0}}
    devices = cluster.devices
    await world.write(sa.update(devices).where(devices.c.id == "a1-g0").values(facts=facts))
    (agent,) = (await world.queue.snapshot(NOW)).agents
    assert agent.cuda_driver == "12.8"
    assert [device.links for device in agent.devices] == [("a1-g1",), None]


@pytest.mark.parametrize(
    "facts, links",
    [
        pytest.param({"links": {"b": 4}, "pci_peers": ["b", "c"]}, ("b",), id="NVLink"),
        pytest.param({"links": {}, "pci_peers": ["c", "b"]}, ("b", "c"), id="PCI without NVLink"),
        pytest.param({"links": None, "pci_peers": []}, (), id="no peers"),
        pytest.param({"links": {"b": 4}, "pci_peers": None}, ("b",), id="PCI peers unknown"),
        pytest.param({"links": None, "pci_peers": None}, None, id="links and PCI peers unknown"),
    ],
)
async def test_nearest_devices_are_read(
    world: World, facts: dict[str, object], links: tuple[str, ...] | None
) -> None:
    devices = cluster.devices
    await world.write(sa.update(devices).where(devices.c.id == "a1-g0").values(facts=facts))
    (agent,) = (await world.queue.snapshot(NOW)).agents
    assert agent.devices[0].links == links


async def test_session_needs_the_cuda_version_of_its_image_label(world: World) -> None:
    for name, labels in (("python", {"ai.backend.min-cuda": "13.0"}), ("plain", {})):
        await world.write(
            sa.insert(cluster.images).values(
                id=name,
                created_at=NOW,
                name=name,
                architecture="x86_64",
                labels=labels,
                min_slots={},
                max_slots={},
            )
        )
    await world.write(sa.update(cluster.devices).values(facts={"cuda": "12.8"}))
    wanted = {"cpu": "1", "mem": "1g", "cuda.device": "1"}
    needs, _ = await world.sessions.enqueue(world.new_session("needs", wanted), world.advance())
    plain, _ = await world.sessions.enqueue(
        world.new_session("plain", wanted, image="plain"), world.advance()
    )
    result = run_pass(await world.queue.snapshot(NOW))
    assert [decision.session_id for decision in result.decisions] == [plain.id]
    (reason,) = result.reasons[needs.id]
    assert "too old for CUDA 13.0" in reason["message"]


async def test_displaced_session_avoids_its_previous_agent(world: World) -> None:
    await world.add_agent("a2")
    row, _ = await world.sessions.enqueue(world.new_session("one"), world.advance())
    other, _ = await world.sessions.enqueue(world.new_session("other"), world.advance())
    assert set(await world.run_pass()) == {row.id, other.id}
    (left,) = {a.agent_id for a in (await world.sessions.view(row.id)).allocations}
    await world.sessions.move(row.id, Event.DISPLACED, world.advance())
    snapshot = await world.queue.snapshot(NOW)
    assert [session.request.avoid for session in snapshot.pending] == [(left,)]
    changes = await world.queue.changes(Touched(sessions=frozenset([row.id, other.id])))
    assert [session.request.avoid for session in changes.pending] == [(left,)]
    (decision,) = run_pass(snapshot).decisions
    assert decision.placement.agent_id != left


async def test_pending_sessions_are_read_in_pages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_rows, "_PAGE", 2)
    created = [
        (await world.sessions.enqueue(world.new_session(f"wait-{n}"), world.advance()))[0].id
        for n in range(5)
    ]
    snapshot = await world.queue.snapshot(NOW)
    assert [waiting.id for waiting in snapshot.pending] == created
    changes = await world.queue.changes(Touched(sessions=frozenset(created[1:])))
    assert [waiting.id for waiting in changes.pending] == created[1:]
    placed = await world.run_pass()
    assert len(placed) > 2
    snapshot = await world.queue.snapshot(NOW)
    assert [running.id for running in snapshot.running] == placed
    assert all(len(running.placements) == 1 for running in snapshot.running)


async def test_unmet_dependencies_are_read_with_the_pending_session(world: World) -> None:
    ids = {}
    for name in ("ended", "runs", "waits"):
        await world.sessions.enqueue(world.new_session(name), NOW)
        (row,) = [r for r in await world.sessions.in_status(*Status) if r.name == name]
        ids[name] = row.id
    await world.sessions.enqueue(world.new_session("after", dependencies=tuple(ids.values())), NOW)
    ended = sa.update(sessions.sessions).where(sessions.sessions.c.id == ids["ended"])
    await world.write(ended.values(status=Status.TERMINATED, result=Result.SUCCESS))
    found = (await world.queue.snapshot(NOW)).pending
    awaits = {
        session.id: set(session.dependency_ids) for session in found if session.dependency_ids
    }
    (last,) = awaits.values()
    assert last == {ids["runs"], ids["waits"]}
    assert {session.unmet_dependencies for session in found if not session.dependency_ids} == {None}
