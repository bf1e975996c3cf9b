"""Lists of the API, except directory listings: sort orders, filters and invalid values."""

from __future__ import annotations

import re

import httpx
import pytest

from bai_services.api.openapi import METHODS, path_of
from bai_services.api.routes import ROUTES
from bai_services.core.listing import MAX_SORT_FIELDS
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
# Values for operators that parse their value in the same way as "equal", so that two values are
# enough.
FEW = ("true", "2026-01-02")
# One value for each kind of substring: empty, digits, wildcards, ASCII letters, NUL, other letters.
SUBSTRINGS = ("", "1.5", "%_\\", "a,b", "\0", "한글")
VALUES_BY_OPERATOR = {
    "": VALUES,
    "__contains": SUBSTRINGS,
    "__ne": FEW,
    "__in": FEW,
    "__gt": FEW,
    "__lte": FEW,
}
# Each field is tested with these filters. The test assumes that two fields have the same type if
# the filters give the same statuses for both. All other filters are sent only for the first field
# of each type.
PROBES = (("", "true"), ("__gt", "1"))
# A valid value for each type, by the statuses of the probes: text, true or false, number.
VALID = {(200, 200): "true", (200, 400): "true", (400, 200): "1"}

LISTS = [
    path_of(pattern)
    for pattern, handler in ROUTES
    for method in METHODS
    if getattr(getattr(getattr(handler, method), "operation", None), "is_list", False)
]
# Lists that belong to a resource, such as the members of a project. ResourceFactory replaces the
# placeholder in a value of this mapping by the key of a new resource.
TEMPLATES = {
    "/endpoints/{key}/audit-log": "/endpoints/{endpoint}/audit-log",
    "/endpoints/{key}/replicas": "/endpoints/{endpoint}/replicas",
    "/endpoints/{key}/replicas/{replica}/history": "/endpoints/{replica}/history",
    "/endpoints/{key}/revisions": "/endpoints/{endpoint}/revisions",
    "/endpoints/{key}/scalings": "/endpoints/{endpoint}/scalings",
    "/endpoints/{key}/tokens": "/endpoints/{endpoint}/tokens",
    "/endpoints/{key}/usage": "/endpoints/{endpoint}/usage",
    "/models/{key}/versions": "/models/{model}/versions",
    "/webhooks/{key}/deliveries": "/webhooks/{webhook}/deliveries",
    "/pipelines/{key}/versions": "/pipelines/{pipeline}/versions",
    "/schedules/{key}/runs": "/schedules/{schedule}/runs",
    "/projects/{key}/members": "/projects/{project}/members",
    "/vfolders/{key}/grants": "/vfolders/{shared_folder}/grants",
    "/vfolders/{key}/invitations": "/vfolders/{folder}/invitations",
    "/resource-groups/{key}/links": "/resource-groups/{linked_group}/links",
    "/sessions/{key}/app-shares": "/sessions/{session}/app-shares",
}
# A session can have several agents, so there is no order by agent.
UNSORTABLE = {("/sessions", "agent")}
# Directory listings have only the filter name__contains; see test_large_directory.py.
WITHOUT_FILTERS = {"/vfolders/{key}/files"}


@pytest.fixture
async def factory(api: Api) -> ResourceFactory:
    await api.world.manager.folders.vfolders.start()
    return await ResourceFactory.of(api)


async def test_filters_and_sort_orders_cause_no_server_error(
    api: Api, factory: ResourceFactory
) -> None:
    http = (await api.client("admin")).http
    # Create a session: without rows, the database would not compare any values.
    await factory.session()
    errors: dict[str, str] = {}
    types: set[tuple[int, ...]] = set()
    for path in sorted(set(LISTS) - WITHOUT_FILTERS):
        url = await factory.fill(TEMPLATES.get(path, path))
        errors |= await errors_of_list(http, url, types)
    assert len(types) > 3
    assert errors == {}


async def errors_of_list(
    http: httpx.AsyncClient, url: str, types: set[tuple[int, ...]]
) -> dict[str, str]:
    """Send filters and sort orders for all fields of a list; return the unexpected responses.

    ``types`` contains the statuses that the probes returned, for each field type that is already
    tested. The function adds new types.
    """
    errors = {}

    async def status_of(**params: str | int) -> int:
        response = await http.get(url, params=params)
        # Some lists respond with 404 if the value of a filter names no existing resource.
        if response.status_code not in (200, 400, 404):
            errors[f"{url} {params}"[:100]] = response.text
        return response.status_code

    rejected = await http.get(url, params={"no_such_field": "x"})
    assert rejected.status_code == 400
    fields = re.sub(r".*its fields are ", "", rejected.json()["message"]).split(", ")
    for field in fields:
        if (url, field) in UNSORTABLE:
            assert await status_of(sort=field) == 400
    sortable = [field for field in fields if (url, field) not in UNSORTABLE]
    for start in range(0, len(sortable), MAX_SORT_FIELDS):
        for sign in ("", "-"):
            order = ",".join(sign + field for field in sortable[start : start + MAX_SORT_FIELDS])
            assert await status_of(sort=order, limit=1) == 200, f"{url} {order}"
    valid: dict[str, str | int] = {}  # one value for each field that has a filter
    for field in fields:
        outcomes = tuple([await status_of(**{field + name: value}) for name, value in PROBES])
        if outcomes in VALID:
            valid[field] = VALID[outcomes]
        elif await status_of(**{field: "2026-01-02"}) == 200:
            valid[field] = "2026-01-02"
        if outcomes in types:
            continue
        types.add(outcomes)
        for operator, values in VALUES_BY_OPERATOR.items():
            for value in values:
                await status_of(**{field + operator: value, "limit": 1})
    # One request for all fields with a valid value each, and one with a part of a value.
    assert await status_of(**valid) in (200, 404), f"{url} {valid}"
    assert await status_of(**{f"{field}__contains": "1.5" for field in fields}) in (200, 404)
    return errors
