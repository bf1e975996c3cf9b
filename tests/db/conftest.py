"""Fixture for a migrated database, into which tests insert a small cluster (``world.py``)."""

from __future__ import annotations

import pytest


@pytest.fixture
def database_url(migrated_database_url: str) -> str:
    return migrated_database_url
