"""Queries of lists: pagination, sort order and filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from .errors import InvalidRequest
from .user_input import read_whole, shown

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
MAX_OFFSET = 2**31
MAX_SORT_FIELDS = 10
MAX_FILTERS = 50
# ``total`` is always exact up to this number of rows. It is also exact up to the end of the page.
MIN_EXACT_TOTAL = 1000

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Request for a page of a list.

    ``sort`` holds field names; a leading ``-`` means descending order. ``filters`` maps a field, or
    ``field__operator`` (contains, in, gte, lte, gt, lt, ne), to the text to compare with.
    """

    limit: int = DEFAULT_LIMIT
    offset: int = 0
    sort: Sequence[str] = ()
    filters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, arguments: Mapping[str, str]) -> ListQuery:
        """Parse the arguments of a query string.

        Raises
        ------
        InvalidRequest
            If ``limit`` or ``offset`` is not a number in its range, or if there are too many
            filters or fields in the sort order.
        """
        rest = dict(arguments)
        found = cls(
            limit=_number(rest.pop("limit", str(DEFAULT_LIMIT)), "limit", 1, MAX_LIMIT),
            offset=_number(rest.pop("offset", "0"), "offset", 0, MAX_OFFSET),
            sort=tuple(name for name in rest.pop("sort", "").split(",") if name),
            filters=rest,
        )
        _check_count("sort fields", len(found.sort), MAX_SORT_FIELDS)
        _check_count("filters", len(rest), MAX_FILTERS)
        return found


def _check_count(what: str, count: int, maximum: int) -> None:
    if count > maximum:
        raise InvalidRequest(f"the request has {count} {what}; at most {maximum} are allowed")


def max_exact_total(limit: int, offset: int) -> int:
    """Return the highest exact ``total`` of a page with this limit and offset.

    If there are more rows, ``total`` is the result plus one, and the exact number is unknown.
    """
    return max(MIN_EXACT_TOTAL, offset + limit)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list, and the total number of rows (see ``max_exact_total``)."""

    items: Sequence[T]
    total: int
    limit: int
    offset: int

    def with_items(self, items: Sequence[U]) -> Page[U]:
        """Return this page with other items, for example after a conversion."""
        return Page(items, self.total, self.limit, self.offset)


def page_of(items: Sequence[T], query: ListQuery, fields: Sequence[str]) -> Page[T]:
    """Return a page of a short list in memory.

    ``fields`` are the attributes by which items can be filtered and sorted. Filters compare texts;
    the operators are ``ne``, ``in`` and ``contains``.

    Raises
    ------
    InvalidRequest
        If a filter or the sort order uses another field, or a filter uses another operator.
    """
    found = list(items)
    for name, value in query.filters.items():
        field_name, _, comparison = name.partition("__")
        _check_field(field_name, fields)
        if comparison not in _TEXT_COMPARISONS:
            raise InvalidRequest(
                f"{comparison!r} is not an operator of this list's filters; "
                "use one of ne, in, contains",
                filter=name,
            )
        matches = _TEXT_COMPARISONS[comparison]
        found = [item for item in found if matches(_text(item, field_name), value)]
    for name in reversed(query.sort):
        field_name = name.removeprefix("-")
        _check_field(field_name, fields)
        key = partial(_text, name=field_name)
        found.sort(key=key, reverse=name.startswith("-"))
    page = found[query.offset : query.offset + query.limit]
    return Page(page, len(found), query.limit, query.offset)


_TEXT_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {
    "": lambda value, operand: value == operand,
    "ne": lambda value, operand: value != operand,
    "in": lambda value, operand: value in operand.split(","),
    "contains": lambda value, operand: operand.lower() in value.lower(),
}


def _check_field(name: str, fields: Sequence[str]) -> None:
    if name not in fields:
        raise InvalidRequest(
            f"this list has no field {name!r}; its fields are {', '.join(sorted(fields))}",
            field=name,
        )


def _text(item: object, name: str) -> str:
    value = getattr(item, name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(text: str, name: str, low: int, high: int) -> int:
    number = read_whole(text)
    if number is None or not low <= number <= high:
        raise InvalidRequest(
            f"{name}={shown(text)!r} is not a whole number from {low} to {high}", field=name
        )
    return number
