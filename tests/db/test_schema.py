"""Migrations: from nothing and from every version, on both databases."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bai_services.db import schema


def test_the_newest_schema_is_what_the_tables_say(database_url: str) -> None:
    schema.upgrade(database_url)
    assert schema.differences(database_url) == []


@pytest.mark.parametrize("revision", schema.revisions())
def test_up_from_each_version(database_url: str, revision: str) -> None:
    schema.upgrade(database_url, revision)
    assert schema.current(database_url) == revision
    schema.upgrade(database_url)
    assert schema.current(database_url) == schema.revisions()[-1]
    assert schema.differences(database_url) == []


def test_an_empty_database_has_no_revision(database_url: str) -> None:
    assert schema.current(database_url) is None
    assert schema.differences(database_url) != []


def test_two_managers_that_start_at_once_migrate_once(database_url: str) -> None:
    code = "import sys; from bai_services.db import schema; schema.upgrade(sys.argv[1])"
    command = [sys.executable, "-c", code, database_url]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], ended
    assert schema.differences(database_url) == []
