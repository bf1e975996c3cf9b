"""Placement tables: trained on recent requests between passes, used by passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bai_services.core.scheduling.placement import build_tables
from bai_services.core.scheduling.queue import Queue
from bai_services.core.scheduling.queue.model import PauseIfBusy, Snapshot
from bai_services.core.sessions.lifecycle import Event
from bai_services.db.scheduling.queue import QueueStore
from bai_services.manager.scheduling import placement_training
from bai_services.manager.scheduling import scheduler as scheduler_module
from bai_services.manager.scheduling.placement_training import PlacementTraining
from benchmarks.served import Commands
from tests.db.world import make_world
from tests.testbed.manager import MovableClock, manager_on
from tests.testbed.manager import make_world as make_demo

REQUEST = {"cpu": "2", "mem": "1g", "cuda.shares": "0.5"}


async def test_tables_are_rebuilt_only_if_the_recent_requests_have_changed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await make_world(database_url)
    built = []

    def count_build(*args: object) -> object:
        built.append(args)
        return build_tables(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(placement_training, "build_tables", count_build)

    class HeldLease:
        async def hold(self) -> int:
            return 1

    training = PlacementTraining(QueueStore(world.database), HeldLease())  # type: ignore[arg-type]
    groups = (await QueueStore(world.database).snapshot(world.advance())).groups
    await training.step()
    assert not built
    trained = training.with_tables(groups)
    assert trained and all(group.tables is None for group in trained.values())
    row, _ = await world.sessions.enqueue(world.new_session("one", REQUEST), world.advance())
    await training.step()
    await training.step()
    assert len(built) == 1
    tables = training.with_tables(groups)[row.resource_group].tables
    assert tables is not None
    assert any((kind.cpu, kind.share) == (2000, 500) for kind in tables.mix)
    await world.sessions.enqueue(world.new_session("two", {"cpu": "3"}), world.advance())
    await training.step()
    assert len(built) == 2
    # A request remains a recent request when its session has ended.
    await world.sessions.move(row.id, Event.STOP_REQUESTED, world.advance())
    await training.step()
    assert len(built) == 2
    await world.close()


async def test_pass_uses_the_trained_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, clock = f"sqlite+aiosqlite:///{tmp_path}/bai.sqlite", MovableClock()
    async with manager_on(url, tmp_path, clock) as manager:
        await Commands(await make_demo(manager, clock)).queue(pending=1, agents=1)
        scheduler = manager.scheduling.scheduler
        tables = build_tables([], [])
        monkeypatch.setattr(placement_training, "build_tables", lambda *_: tables)
        read: list[Snapshot] = []

        def record(snapshot: Snapshot, pause_if_busy: PauseIfBusy) -> Queue:
            read.append(snapshot)
            return Queue(snapshot, pause_if_busy)

        monkeypatch.setattr(scheduler_module, "Queue", record)
        await scheduler.placement_training.step()
        await scheduler.run_pass()
        assert read[-1].groups["default"].tables is tables
