"""Fixture with an empty database: the tests of this folder insert a small cluster (``world``)."""

from __future__ import annotations

import pytest


@pytest.fixture
def database_url(migrated_database_url: str) -> str:
    return migrated_database_url
