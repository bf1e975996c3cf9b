"""Lists as CSV or JSON lines: all rows that match the filters, read page by page."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel
from tornado.web import RequestHandler

from bai_services.core.errors import InvalidRequest, TooLarge
from bai_services.core.listing import MAX_LIMIT, ListQuery
from bai_services.core.user_input import shown

# Spreadsheets run cells that begin with these signs as formulas. In Chinese, Japanese and Korean
# locales, they also accept the full-width signs; the last sign is the minus sign U+2212.
FORMULA_SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20\u2212"
# Spreadsheets skip blanks and invisible characters before a formula, and some start a new cell at a
# control character.
_MAY_BE_FORMULA = re.compile(
    rf"[\x00-\x1f]|[\s\x00-\x1f\u200b-\u200f\u2060\ufeff]*[{re.escape(FORMULA_SIGNS)}]"
)
# Spreadsheets in many locales separate cells by semicolons. They ignore quotes inside a cell, so
# quoting does not keep a cell with a semicolon, tab or line break in one piece.
_BLANKS_AND_SIGN = re.compile(
    rf"([\s;\"\x00-\x1f\u200b-\u200f\u2060\ufeff]+)([{re.escape(FORMULA_SIGNS)}]?)"
)
_SEPARATOR = re.compile(r"[;\x00-\x1f]")
# Without this mark, spreadsheets use the encoding of the system instead of UTF-8.
BYTE_ORDER_MARK = "\ufeff"
MAX_FILENAME_LENGTH = 255
# Limited because each page takes longer than the previous one: the database reads and skips all
# earlier rows.
MAX_EXPORTED_ROWS = 200_000
_FILENAME = re.compile(r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f-\x9f]+")
_NOT_PLAIN = re.compile(r'[^ -~]|["%]')


async def write_csv(
    handler: RequestHandler,
    columns: Sequence[str],
    query: ListQuery,
    page_of: Callable[[ListQuery], Awaitable[Any]],
    encode: Callable[[Any], Any],
) -> None:
    """Send all rows of a list from ``query.offset`` on, in the order of the list.

    ``encode`` converts values that ``json`` cannot serialize. An error on the first page is raised
    before anything is sent.
    """

    def lines_of(items: Sequence[Any]) -> str:
        return _lines([_fields(item, columns, encode) for item in items])

    head = BYTE_ORDER_MARK + _lines([columns])
    await _write_pages(handler, query, page_of, lines_of, "text/csv", head)


async def write_json_lines(
    handler: RequestHandler,
    query: ListQuery,
    page_of: Callable[[ListQuery], Awaitable[Any]],
    encode: Callable[[Any], Any],
) -> None:
    """Send all rows of a list, each as a JSON object on a line; otherwise as ``write_csv``."""

    def lines_of(items: Sequence[Any]) -> str:
        return "".join(
            json.dumps(item, default=encode, ensure_ascii=False, allow_nan=False) + "\n"
            for item in items
        )

    await _write_pages(handler, query, page_of, lines_of, "application/x-ndjson", "")


async def _write_pages(
    handler: RequestHandler,
    query: ListQuery,
    page_of: Callable[[ListQuery], Awaitable[Any]],
    lines_of: Callable[[Sequence[Any]], str],
    media_type: str,
    head: str,
) -> None:
    query = replace(query, limit=MAX_LIMIT)
    first, text = query.offset, head
    while True:
        if query.offset - first >= MAX_EXPORTED_ROWS:
            raise TooLarge(
                f"an export has at most {MAX_EXPORTED_ROWS} rows; use filters, for example on a "
                "time, to export the list in parts"
            )
        page = await page_of(query)
        handler.set_header("Content-Type", f"{media_type}; charset=utf-8")
        handler.write(text + lines_of(page.items))
        # Back-pressure: read the next page only when this page has been written to the socket.
        await handler.flush()
        if len(page.items) < MAX_LIMIT:
            await handler.finish()
            return
        text = ""
        query = replace(query, offset=query.offset + MAX_LIMIT)


def csv_of(rows: Sequence[Any], columns: Sequence[str], encode: Callable[[Any], Any]) -> str:
    """Return a short table as the text of a CSV file."""
    return BYTE_ORDER_MARK + _lines([columns, *(_fields(row, columns, encode) for row in rows)])


def content_disposition(filename: str) -> str:
    """Return a Content-Disposition header; with it, a browser saves the response as ``filename``.

    Raises
    ------
    InvalidRequest
        If ``filename`` is not a valid name of a file.
    """
    if not 1 <= len(filename) <= MAX_FILENAME_LENGTH or not _FILENAME.fullmatch(filename):
        raise InvalidRequest(
            f"filename={shown(filename)!r} must have 1 to {MAX_FILENAME_LENGTH} characters, "
            "without slashes, backslashes and control characters",
            field="filename",
        )
    # The ASCII name is for clients without support for RFC 8187.
    plain = _NOT_PLAIN.sub("_", filename)
    encoded = quote(filename, safe="", errors="replace")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"


def columns_of(model: Any) -> list[str]:
    """Return the fields of a response model, which is a Pydantic model or a dataclass."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        return list(model.model_fields)
    return [field.name for field in fields(model)]


def cell(value: Any) -> str:
    """Return a JSON value as the text of a cell that no spreadsheet runs as a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    mark = "'" if _MAY_BE_FORMULA.match(text) else ""
    return mark + _BLANKS_AND_SIGN.sub(_marked, text)


def _marked(match: re.Match[str]) -> str:
    """Return the match with a mark before the sign that follows a separator."""
    blanks, sign = match.groups()
    return f"{blanks}'{sign}" if sign and _SEPARATOR.search(blanks) else match[0]


def _fields(item: Any, columns: Sequence[str], encode: Callable[[Any], Any]) -> list[str]:
    plain: Mapping[str, Any] = json.loads(json.dumps(item, default=encode))
    return [cell(plain.get(column)) for column in columns]


def _lines(rows: Iterable[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue()
