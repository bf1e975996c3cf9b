"""Migrations from an empty database and from every revision, on SQLite and PostgreSQL."""

from __future__ import annotations

import subprocess
import sys

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


def test_next_revision_follows_the_newest() -> None:
    assert int(schema.next_revision()) == int(schema.revisions()[-1]) + 1
