"""Every list takes every filter and order of its fields, and refuses the rest in plain words."""

from __future__ import annotations

import re

import pytest

from bai_services.api.openapi import METHODS, path_of
from bai_services.api.routes import ROUTES
from tests.api.things import Things
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
# Two of these are enough for operators that read their value as these do.
FEW = ("true", "2026-01-02")
# One for each way in which a part of a text is compared: nothing, digits, wildcards, ASCII
# letters, NUL, other letters.
PARTS = ("", "1.5", "%_\\", "a,b", "\0", "한글")
VALUES_OF = {"": VALUES, "__contains": PARTS, "__ne": FEW, "__in": FEW, "__gt": FEW, "__lte": FEW}

LISTS = [
    path_of(pattern)
    for pattern, handler in ROUTES
    for method in METHODS
    if getattr(getattr(getattr(handler, method), "operation", None), "is_list", False)
]
# Where a list lies below a thing, the noun of things.py that it is.
BELOW = {
    "/projects/{key}/members": "/projects/{project}/members",
    "/vfolders/{key}/grants": "/vfolders/{lent_folder}/grants",
    "/vfolders/{key}/invitations": "/vfolders/{folder}/invitations",
    "/resource-groups/{key}/links": "/resource-groups/{linked_group}/links",
    "/sessions/{key}/app-shares": "/sessions/{session}/app-shares",
}
# Files are listed by name only; test_files.py has that.
UNSORTED = {"/vfolders/{key}/files"}


@pytest.fixture
async def things(api: Api) -> Things:
    await api.world.manager.folders.vfolders.start()
    return await Things.of(api)


@pytest.mark.parametrize("path", sorted(set(LISTS) - UNSORTED))
async def test_fields_operators_and_values(api: Api, things: Things, path: str) -> None:
    http = (await api.client("admin")).http
    # Something of everything, so that rows are compared and not only columns.
    await things.session()
    url = await things.fill(BELOW.get(path, path))
    refused = await http.get(url, params={"no_such_field": "x"})
    assert refused.status_code == 400
    fields = re.sub(r".*it has ", "", refused.json()["message"]).split(", ")
    odd = {}
    for field in fields:
        for order in (field, f"-{field}"):
            answer = await http.get(url, params={"sort": order})
            if answer.status_code != 200:
                odd[order] = answer.text
        for operator, values in VALUES_OF.items():
            for value in values:
                answer = await http.get(url, params={field + operator: value, "limit": 1})
                # 404: some lists take the name of a thing beside their fields.
                if answer.status_code not in (200, 400, 404):
                    odd[field + operator, value[:30]] = answer.text
    assert odd == {}
