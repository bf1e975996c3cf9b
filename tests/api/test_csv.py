"""Export of lists as CSV: filtered and sorted rows, and cells that cannot be formulas."""

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


def _operation_of(handler: type[APIHandler]) -> Any:
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
        ("\nx", "'\nx"),
        ("＝1+1", "'＝1+1"),
        ("＋1", "'＋1"),
        ("－1", "'－1"),
        ("＠SUM(A1)", "'＠SUM(A1)"),
        # Spreadsheets skip spaces and some invisible characters before a formula.
        (" =1+1", "' =1+1"),
        (" \t\r\n＝1+1", "' \t\r\n'＝1+1"),
        ("\u00a0=1+1", "'\u00a0=1+1"),
        ("\u3000@x", "'\u3000@x"),
        ("\ufeff=1+1", "'\ufeff=1+1"),
        ("\u200b=1+1", "'\u200b=1+1"),
        ("\0=1+1", "'\0'=1+1"),
        ("\v=1+1", "'\v'=1+1"),
        ("−1", "'−1"),
        (" plain", " plain"),
        ("a=b", "a=b"),
        # Spreadsheets in many locales separate cells by semicolons, and some also by tabs.
        ("x;=1+1", "x;'=1+1"),
        ("x;y", "x;y"),
        ("x; =1;\t@A", "x; '=1;\t'@A"),
        ('x;"=1+1;"', 'x;"\'=1+1;"'),
        # If a quoted cell is not the first of its line, such spreadsheets also split it at line
        # breaks.
        ("x\n=1+1", "x\n'=1+1"),
        ("", ""),
        (" ", " "),
        (-1, "-1"),
        (1.5, "1.5"),
        (True, "true"),
        (None, ""),
        ({"cpu": "1"}, '{"cpu": "1"}'),
        (["a", "한글"], '["a", "한글"]'),
    ],
)
def test_cell_is_text_but_not_a_formula(value: object, text: str) -> None:
    assert cell(value) == text


@pytest.mark.parametrize(
    "handler",
    [handler for _, handler in ROUTES if getattr(_operation_of(handler), "is_list", False)],
)
def test_every_list_has_columns(handler: type[APIHandler]) -> None:
    assert columns_of(_operation_of(handler).returns)


async def test_list_as_csv_has_all_rows_of_the_filter_in_order(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With 2 rows per page, five users need several pages.
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


async def test_an_export_has_the_requested_file_name(user: Client) -> None:
    for name, header in (
        ("june.csv", "attachment; filename=\"june.csv\"; filename*=UTF-8''june.csv"),
        ('a "b".csv', "attachment; filename=\"a _b_.csv\"; filename*=UTF-8''a%20%22b%22.csv"),
        ("세션", "attachment; filename=\"__\"; filename*=UTF-8''%EC%84%B8%EC%85%98"),
        ("x" * 255, f"attachment; filename=\"{'x' * 255}\"; filename*=UTF-8''{'x' * 255}"),
    ):
        async with user.stream("/sessions", format="csv", filename=name) as response:
            assert response.headers["Content-Disposition"] == header


async def test_export_with_an_invalid_format_file_name_or_filter_is_rejected(user: Client) -> None:
    for query in (
        {"format": "xlsx"},
        {"format": "csv", "nothing": "1"},
        *({"format": "csv", "filename": name} for name in ("x" * 256, "a/b", "a\\b", "..", "\x1f")),
    ):
        with pytest.raises(errors.InvalidRequest):
            await user.get("/sessions", **query)
