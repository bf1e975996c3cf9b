"""Lists as CSV: the rows of the filter in its order, without formulas."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from bai_services.api.base import APIHandler
from bai_services.api.csv_export import cell, columns_of
from bai_services.api.routes import ROUTES
from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.manager import Api


def _operation(handler: type[APIHandler]) -> Any:
    return getattr(handler.get, "operation", None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        (-1, "-1"),
        (1.5, "1.5"),
        (True, "true"),
        (None, ""),
        ({"cpu": "1"}, '{"cpu": "1"}'),
        (["a", "한글"], '["a", "한글"]'),
    ],
)
def test_cell_is_no_formula(value: object, text: str) -> None:
    assert cell(value) == text


@pytest.mark.parametrize(
    "handler",
    [handler for _, handler in ROUTES if getattr(_operation(handler), "is_list", False)],
)
def test_every_list_has_columns(handler: type[APIHandler]) -> None:
    assert columns_of(_operation(handler).returns)


async def test_list_as_csv_has_all_rows_of_the_filter_in_order(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several pages without several hundred users.
    monkeypatch.setattr("bai_services.api.csv_export.MAX_LIMIT", 2)
    admin = await api.client("admin")
    names = [f"export-{number}" for number in range(5)]
    for name in names:
        spec = {"username": name, "email": f"{name}@example.com", "full_name": "=cmd()"}
        await admin.post("/users", spec)
    async with admin.stream(
        "/users", format="csv", username__contains="export-", sort="-username"
    ) as response:
        assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert 'filename="users.csv"' in response.headers["Content-Disposition"]
        text = (await response.aread()).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["username"] for row in rows] == names[::-1]
    assert {row["full_name"] for row in rows} == {"'=cmd()"}


async def test_format_and_filters_of_an_export_are_checked(api: Api, user: Client) -> None:
    for query in ({"format": "xlsx"}, {"format": "csv", "nothing": "1"}):
        with pytest.raises(errors.InvalidRequest):
            await user.get("/sessions", **query)
