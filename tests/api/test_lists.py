"""Every list route with every filter and sort order of its fields, and with invalid values."""

from __future__ import annotations

import re

import pytest

from bai_services.api.openapi import METHODS, path_of
from bai_services.api.routes import ROUTES
from tests.api.resource_factory import ResourceFactory
from tests.testbed.manager import Api

pytestmark = pytest.mark.both_databases

VALUES = (
    "",
    "true",
    "1",
    "-1",
    "1.5",
    "99999999999999999999",
    "nan",
    "2026-01-02",
    "2026-01-02T03:04:05",
    "2026-01-02T03:04:05+09:00",
    "0001-01-01T00:00:00+14:00",
    "a,b",
    "%_\\",
    "'\"",
    "\0",
    "한글",
    "x" * 300,
)
# Two values suffice for the operators that parse their value like the operator "equal".
FEW = ("true", "2026-01-02")
# One value for each way of matching a substring: empty, digits, wildcards, ASCII letters, NUL,
# other letters.
SUBSTRINGS = ("", "1.5", "%_\\", "a,b", "\0", "한글")
VALUES_BY_OPERATOR = {
    "": VALUES,
    "__contains": SUBSTRINGS,
    "__ne": FEW,
    "__in": FEW,
    "__gt": FEW,
    "__lte": FEW,
}

# Values are parsed before the query, so the full set is only tested with PostgreSQL, the stricter
# database.
ON_SQLITE = {operator: FEW for operator in VALUES_BY_OPERATOR}

LISTS = [
    path_of(pattern)
    for pattern, handler in ROUTES
    for method in METHODS
    if getattr(getattr(getattr(handler, method), "operation", None), "is_list", False)
]
# Lists below a resource, with the placeholder of ResourceFactory for it.
TEMPLATES = {
    "/projects/{key}/members": "/projects/{project}/members",
    "/vfolders/{key}/grants": "/vfolders/{shared_folder}/grants",
    "/vfolders/{key}/invitations": "/vfolders/{folder}/invitations",
    "/resource-groups/{key}/links": "/resource-groups/{linked_group}/links",
    "/sessions/{key}/app-shares": "/sessions/{session}/app-shares",
}
# Directory listings have no filters; see test_files.py.
UNSORTED = {"/vfolders/{key}/files"}


@pytest.fixture
async def factory(api: Api) -> ResourceFactory:
    await api.world.manager.folders.vfolders.start()
    return await ResourceFactory.of(api)


@pytest.mark.parametrize("path", sorted(set(LISTS) - UNSORTED))
async def test_list_accepts_or_rejects_every_filter_and_sort_order(
    api: Api, factory: ResourceFactory, path: str
) -> None:
    http = (await api.client("admin")).http
    # Without rows, the database would not compare any values.
    await factory.session()
    url = await factory.fill(TEMPLATES.get(path, path))
    rejected = await http.get(url, params={"no_such_field": "x"})
    assert rejected.status_code == 400
    fields = re.sub(r".*its fields are ", "", rejected.json()["message"]).split(", ")
    values_of = ON_SQLITE if api.world.manager.database.is_sqlite else VALUES_BY_OPERATOR
    errors = {}
    for field in fields:
        for order in (field, f"-{field}"):
            response = await http.get(url, params={"sort": order})
            if response.status_code != 200:
                errors[order] = response.text
        for operator, values in values_of.items():
            for value in values:
                response = await http.get(url, params={field + operator: value, "limit": 1})
                # 404: some lists also accept the name of a resource, which must exist.
                if response.status_code not in (200, 400, 404):
                    errors[field + operator, value[:30]] = response.text
    assert errors == {}
