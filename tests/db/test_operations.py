"""Stores of announcements, maintenance and system facts, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import NotFound
from bai_services.db.database import Database
from bai_services.db.operations.announcements import AnnouncementStore
from bai_services.db.operations.maintenances import MaintenanceStore, read_windows
from bai_services.db.operations.system import SystemStore

NOW = datetime(2026, 11, 26, tzinfo=UTC)
ENTRY = AuditEntry(at=NOW, actor="ann", action="x.create", entity="x", entity_id="1")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url)
    yield made
    await made.close()


def announcement(key: str, at: datetime, days: int | None) -> dict[str, Any]:
    return {
        "id": key,
        "created_at": at,
        "title": key,
        "text": "",
        "level": "info",
        "audience": "everyone",
        "target": None,
        "domain": None,
        "project_id": None,
        "starts_at": at,
        "ends_at": None if days is None else at + timedelta(days=days),
        "author": "ann",
    }


async def test_old_announcements_are_removed_when_one_is_created(database: Database) -> None:
    store = AnnouncementStore(database)
    for key, days in (("ended", 1), ("open", None)):
        await store.create(announcement(key, NOW, days), ENTRY)
    found, dismissed = await store.current(NOW + timedelta(hours=1), "nobody")
    assert ([each.id for each in found], dismissed) == (["ended", "open"], set())
    await store.create(announcement("new", NOW + timedelta(days=92), 1), ENTRY)
    with pytest.raises(NotFound):
        await store.one("ended")
    assert (await store.one("open")).title == "open"


async def test_maintenance_with_scope_all_is_in_the_windows_of_every_group(
    database: Database,
) -> None:
    store = MaintenanceStore(database)
    values = {
        "id": "m1",
        "created_at": NOW,
        "scope": "all",
        "target": None,
        "mode": "drain",
        "reason": "disks",
        "starts_at": NOW,
        "ends_at": None,
        "author": "ann",
    }
    await store.create(values, ENTRY)
    with pytest.raises(NotFound):
        await store.create({**values, "id": "m2", "scope": "agent", "target": "a"}, ENTRY)
    async with database.read() as tx:
        windows = await read_windows(tx, ["g", "h"])
    assert {name: [w.reason for w in found] for name, found in windows.items()} == {
        "g": ["disks"],
        "h": ["disks"],
    }


async def test_system_facts_of_an_empty_database(database: Database) -> None:
    facts = await SystemStore(database).facts()
    assert facts.size_bytes > 0
    assert facts.kind in ("sqlite", "postgresql")
    assert (facts.sessions, facts.agents) == ({}, {})
