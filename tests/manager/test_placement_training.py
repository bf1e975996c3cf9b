"""Placement tables: trained on recent requests between passes, used by passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bai_services.core.scheduling.placement import build_tables
from bai_services.core.sessions.lifecycle import Event
from bai_services.db.scheduling.queue import QueueStore
from bai_services.manager.scheduling import placement_training
from bai_services.manager.scheduling.placement_training import PlacementTraining
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
    assert all(group.tables is None for group in training.with_tables(groups).values())
    row, _ = await world.sessions.enqueue(world.new_session("one", REQUEST), world.advance())
    await training.step()
    await training.step()
    assert len(built) == 1
    tables = training.with_tables(groups)[row.resource_group].tables
    assert tables is not None
    assert any((kind.cpu, kind.share) == (2000, 500) for kind in tables.mix)
    # Ended sessions count as well as pending ones.
    await world.sessions.move(row.id, Event.STOP_REQUESTED, world.advance())
    await training.step()
    assert len(built) == 1
    await world.close()


async def test_pass_uses_the_trained_tables(tmp_path: Path) -> None:
    url, clock = f"sqlite+aiosqlite:///{tmp_path}/bai.sqlite", MovableClock()
    async with manager_on(url, tmp_path, clock) as manager:
        await make_demo(manager, clock)
        scheduler = manager.scheduling.scheduler
        tables = build_tables([], [])
        scheduler._placement_training._tables["default"] = tables
        await scheduler.run_pass()
        assert scheduler._queue is not None
        assert scheduler._queue.group_queue("default").state.tables is tables
