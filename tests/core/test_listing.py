"""Pages of short lists in memory."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, page_of


@dataclass(frozen=True)
class Host:
    name: str
    is_default: bool = False


HOSTS = (Host("local", True), Host("fast"), Host("archive"))
FIELDS = ("name", "is_default")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["local", "fast", "archive"]),
        ({"sort": "name"}, ["archive", "fast", "local"]),
        ({"sort": "-is_default,name"}, ["local", "archive", "fast"]),
        ({"limit": "1", "offset": "1"}, ["fast"]),
        ({"name": "fast"}, ["fast"]),
        ({"name__ne": "fast"}, ["local", "archive"]),
        ({"name__in": "fast,local"}, ["local", "fast"]),
        ({"name__contains": "A"}, ["local", "fast", "archive"]),
        ({"is_default": "true"}, ["local"]),
    ],
)
def test_page_matches_the_query(query: dict[str, str], names: list[str]) -> None:
    page = page_of(HOSTS, ListQuery.parse(query), FIELDS)
    assert [host.name for host in page.items] == names


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"path": "/x"}, "no field 'path'; its fields are is_default, name"),
        ({"sort": "path"}, "no field 'path'"),
        ({"name__gt": "a"}, "use one of ne, in, contains"),
    ],
)
def test_unknown_field_or_operator_is_rejected(query: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        page_of(HOSTS, ListQuery.parse(query), FIELDS)
