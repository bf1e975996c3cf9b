"""Migrations from an empty database and from every revision, on SQLite and PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from bai_services.db import schema


def test_migrated_schema_matches_tables(empty_database_url: str) -> None:
    schema.upgrade(empty_database_url)
    assert schema.differences(empty_database_url) == []


def test_upgrade_by_single_revisions_reaches_the_latest(empty_database_url: str) -> None:
    for revision in schema.revisions():
        schema.upgrade(empty_database_url, revision)
        assert schema.current(empty_database_url) == revision
    assert schema.differences(empty_database_url) == []


def test_empty_database_has_no_revision(empty_database_url: str) -> None:
    assert schema.current(empty_database_url) is None
    assert schema.differences(empty_database_url) != []


def test_concurrent_upgrades_succeed(empty_database_url: str) -> None:
    code = "import sys; from bai_services.db import schema; schema.upgrade(sys.argv[1])"
    command = [sys.executable, "-c", code, empty_database_url]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], ended
    assert schema.differences(empty_database_url) == []


@contextmanager
def transaction(url: str) -> Iterator[sa.Connection]:
    target = sa.make_url(url)
    driver = "sqlite" if target.get_backend_name() == "sqlite" else "postgresql+psycopg"
    engine = sa.create_engine(target.set(drivername=driver), poolclass=sa.NullPool)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def test_failed_migration_is_rolled_back(empty_database_url: str) -> None:
    schema.upgrade(empty_database_url, "0063")
    with transaction(empty_database_url) as connection:
        # Migration 0064 succeeds; 0065 fails, because this table exists already.
        connection.execute(sa.text("CREATE TABLE pipeline_templates (id INTEGER)"))
    with pytest.raises(schema.MigrationFailed, match="rolled back to revision 0063: .*already"):
        schema.upgrade(empty_database_url)
    assert schema.current(empty_database_url) == "0063"
    with transaction(empty_database_url) as connection:
        assert "endpoint_names" not in sa.inspect(connection).get_table_names()
        connection.execute(sa.text("DROP TABLE pipeline_templates"))
    schema.upgrade(empty_database_url)
    assert schema.differences(empty_database_url) == []


def test_folders_of_earlier_imports_remain(empty_database_url: str) -> None:
    """An ended import without a folder is not cleaned up, so its user keeps the complete files."""
    schema.upgrade(empty_database_url, "0069")
    columns = {
        "project_id": "p", "owner_id": "u", "folder": "f", "kind": "url", "source": "",
        "revision": "", "commit_id": "", "patterns": "[]", "sha256": "", "files": 0,
        "total_files": 0, "bytes": 0, "total_bytes": 0, "problem": "", "vfolder_id": "v",
        "created_at": "2026-01-01 00:00:00", "changed_at": "2026-01-01 00:00:00",
    }  # fmt: skip
    statuses = ("failed", "cancelled", "done", "running", "queued")
    names = ["id", "status", *columns]
    insert = sa.text(
        f"INSERT INTO model_imports ({', '.join(names)}) VALUES (:{', :'.join(names)})"
    )
    with transaction(empty_database_url) as connection:
        if connection.dialect.name == "postgresql":
            # Do not check foreign keys: the user, the project and the folder do not matter.
            connection.execute(sa.text("SET LOCAL session_replication_role = replica"))
        for status in statuses:
            connection.execute(insert, {**columns, "id": status, "status": status})
    schema.upgrade(empty_database_url, "0070")
    with transaction(empty_database_url) as connection:
        found = connection.execute(sa.text("SELECT id, vfolder_id FROM model_imports"))
        folders = {row.id: row.vfolder_id for row in found}
    ended = {"failed": None, "cancelled": None}
    assert folders == {**ended, "done": "v", "running": "v", "queued": "v"}


def test_amounts_of_budgets_become_hundredths(empty_database_url: str) -> None:
    schema.upgrade(empty_database_url, "0074")
    amounts = {"a": 0.29, "b": 1234567.1, "c": 0.0, "d": 1e12}
    insert = sa.text(
        "INSERT INTO project_budgets (project_id, created_at, version, changed_by_role, amount,"
        " mode, warn_percents, period, time_zone, reported_percent)"
        " VALUES (:id, '2026-01-01 00:00:00', 1, 'superadmin', :amount, 'warn', '[]', 'month',"
        " 'UTC', 0)"
    )
    with transaction(empty_database_url) as connection:
        if connection.dialect.name == "postgresql":
            # Do not check foreign keys: the project does not matter.
            connection.execute(sa.text("SET LOCAL session_replication_role = replica"))
        for name, amount in amounts.items():
            connection.execute(insert, {"id": name, "amount": amount})
    schema.upgrade(empty_database_url, "0075")
    with transaction(empty_database_url) as connection:
        found = connection.execute(sa.text("SELECT project_id, amount FROM project_budgets"))
        migrated = {row.project_id: row.amount for row in found}
    assert migrated == {"a": 29, "b": 123456710, "c": 0, "d": 10**14}


def test_database_of_a_later_version_is_not_migrated(empty_database_url: str) -> None:
    schema.upgrade(empty_database_url)
    with transaction(empty_database_url) as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(schema.MigrationFailed, match="revision 9999.*restore a backup"):
        schema.upgrade(empty_database_url)
    assert schema.current(empty_database_url) == "9999"


def test_next_revision_follows_the_newest() -> None:
    assert int(schema.next_revision()) == int(schema.revisions()[-1]) + 1
