"""Paging, sorting and filtering of lists in the database."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.errors import InvalidRequest
from bai_services.core.listing import ListQuery, Page, max_exact_total
from bai_services.core.user_input import read_whole, shown

from .records import T, records

_COMPARISONS: Mapping[str, Callable[[Any, Any], sa.ColumnElement[bool]]] = {
    "": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_ORDERED = frozenset({"gt", "gte", "lt", "lte"})
_OPERATORS = ("contains", "in", *filter(None, _COMPARISONS))

# Maximum number of keys that replace a condition on names. If more keys match, the condition on the
# joined table is used.
_MAX_KEYS = 20
# Operators of the conditions that are resolved to keys.
_RESOLVED_OPERATORS = frozenset({"", "in", "contains"})


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """The columns of a join: ``key`` of the joined table, and ``referring`` of the listed table."""

    key: sa.ColumnElement[Any]
    referring: sa.ColumnElement[Any]


@dataclass(frozen=True, slots=True)
class ValueGroup:
    """Values of a field that may match very many rows.

    SQLite has no statistics (``ANALYZE`` is not run), so it could read all these rows by the index
    of the field and sort them. A filter on values of one group disables that index on SQLite, so
    that the rows are read in the requested order.

    ``implied`` is the condition of a partial index for the default order; it is true for every row
    with one of the values. A group with ``implied`` applies only to the default order and its
    reverse.
    """

    values: frozenset[str]
    implied: sa.ColumnElement[bool] | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """Sorting and filtering of a select; ``columns`` maps public names to columns."""

    columns: Mapping[str, sa.ColumnElement[Any]]
    default_sort: Sequence[str] = field(default=("-created_at",))
    # The default order sorts rows with equal values in the requested fields. This option reverses
    # it if the last requested field has the opposite direction, so that one index serves both
    # directions.
    reverses_default: bool = False
    groups: Mapping[str, Sequence[ValueGroup]] = field(default_factory=dict)
    # Fields with names from a joined table. A condition on such a field is first resolved to the
    # keys of the names, because the database has statistics of the number of rows per key.
    named: Mapping[str, JoinColumns] = field(default_factory=dict)
    # Fields of a table that may have several rows for one listed row, such as the agents of a
    # session.
    # A condition must be true for at least one of these rows. The list cannot be sorted by such a
    # field.
    related: Mapping[str, JoinColumns] = field(default_factory=dict)
    # Sort expressions that replace columns, for example to ignore upper and lower case.
    sorted_by: Mapping[str, sa.ColumnElement[Any]] = field(default_factory=dict)

    async def page(
        self,
        tx: AsyncConnection,
        rows: sa.Select[Any],
        query: ListQuery,
        make: Callable[..., T],
    ) -> Page[T]:
        """Return a page with ``make(**columns)`` of each row.

        ``total`` is counted up to ``max_exact_total``.

        Raises
        ------
        InvalidRequest
            If a filter or the sort order is not valid: for example, the list has no such field.
        """
        for name, value in query.filters.items():
            condition = self._grouped(tx, name, value, query)
            if condition is None:
                condition = self._condition(tx, name, value)
            rows = rows.where(await self._resolve_names(tx, name, condition))
        order = [self._order(name) for name in self._sort(query)]
        result = await tx.execute(rows.order_by(*order).limit(query.limit).offset(query.offset))
        items = records(make, result)
        # The end of the list is known on its last page, so no count is needed.
        if len(items) < query.limit and (items or not query.offset):
            return Page(items, query.offset + len(items), query.limit, query.offset)
        # Limit the count: counting a long list takes much longer than reading a page.
        most = max_exact_total(query.limit, query.offset) + 1
        counted = rows.with_only_columns(sa.literal(1), maintain_column_froms=True).limit(most)
        total = await tx.scalar(sa.select(sa.func.count()).select_from(counted.subquery()))
        return Page(items, int(total or 0), query.limit, query.offset)

    def _sort(self, query: ListQuery) -> list[str]:
        """Return the requested sort order, followed by the default order for equal rows.

        Without the default order, PostgreSQL would return equal rows in any order, and pages could
        repeat or miss rows.
        """
        chosen = {name.removeprefix("-") for name in query.sort}
        rest = [name for name in self.default_sort if name.removeprefix("-") not in chosen]
        if self.reverses_default and _is_reversed(query.sort, self.default_sort):
            rest = [name[1:] if name.startswith("-") else f"-{name}" for name in rest]
        return [*query.sort, *rest]

    async def _resolve_names(
        self, tx: AsyncConnection, name: str, condition: sa.ColumnElement[bool]
    ) -> sa.ColumnElement[bool]:
        """Replace a condition on a joined table with a condition on the keys of the matching rows.

        A condition on names is not replaced if it matches more than ``_MAX_KEYS`` keys.
        """
        field_name, _, comparison = name.partition("__")
        if related := self.related.get(field_name):
            return related.referring.in_(sa.select(related.key).where(condition))
        named = self.named.get(field_name)
        if named is None or comparison not in _RESOLVED_OPERATORS:
            return condition
        select = sa.select(named.key).where(condition).limit(_MAX_KEYS + 1)
        keys = (await tx.scalars(select)).all()
        return named.referring.in_(keys) if len(keys) <= _MAX_KEYS else condition

    def _grouped(
        self, tx: AsyncConnection, name: str, value: str, query: ListQuery
    ) -> sa.ColumnElement[bool] | None:
        """Return the condition of a filter on values of one group; None for any other filter."""
        field_name, _, comparison = name.partition("__")
        if comparison not in ("", "in"):
            return None
        values = value.split(",") if comparison else [value]
        first, default = self._sort(query)[0], self.default_sort[0]
        is_default = first.removeprefix("-") == default.removeprefix("-")
        for group in self.groups.get(field_name, ()):
            if group.values.issuperset(values) and (group.implied is None or is_default):
                column = self.columns[field_name]
                if tx.dialect.name == "sqlite":
                    # An expression, so that no index of the column is used.
                    column = column.concat("")
                condition = column.in_(values)
                return condition if group.implied is None else group.implied & condition
        return None

    def _order(self, name: str) -> sa.ColumnElement[Any]:
        field_name = name.removeprefix("-")
        if field_name in self.related:
            raise InvalidRequest(
                f"a list cannot be sorted by {field_name}: a row may have several values",
                field=field_name,
            )
        column = self._column(field_name)
        column = self.sorted_by.get(field_name, column)
        return column.desc() if name.startswith("-") else column.asc()

    def _condition(self, tx: AsyncConnection, name: str, value: str) -> sa.ColumnElement[bool]:
        field_name, _, comparison = name.partition("__")
        if comparison and comparison not in _OPERATORS:
            raise InvalidRequest(
                f"{comparison!r} is not a filter operator; use one of {', '.join(_OPERATORS)}",
                filter=name,
            )
        column = self._column(field_name)
        if comparison == "contains":
            if "\0" in value:
                raise InvalidRequest(f"{name} cannot contain a NUL", filter=name)
            return _contains(column, value, is_sqlite=tx.dialect.name == "sqlite")
        if comparison in _ORDERED and isinstance(column.type, sa.Boolean):
            raise InvalidRequest(
                f"{field_name} is true or false and has no order, so {name} is not possible",
                filter=name,
            )
        if comparison == "in":
            return column.in_([_typed(column, part, name) for part in value.split(",")])
        return _COMPARISONS[comparison](column, _typed(column, value, name))

    def _column(self, name: str) -> sa.ColumnElement[Any]:
        try:
            return self.columns[name]
        except KeyError:
            fields = ", ".join(sorted(self.columns))
            raise InvalidRequest(
                f"this list has no field {name!r}; its fields are {fields}", field=name
            ) from None


def _is_reversed(sort: Sequence[str], default: Sequence[str]) -> bool:
    """Return whether the last field of ``sort`` has the opposite direction of the default order."""
    return bool(sort) and sort[-1].startswith("-") != default[0].startswith("-")


def _contains(
    column: sa.ColumnElement[Any], value: str, *, is_sqlite: bool
) -> sa.ColumnElement[bool]:
    """Return the condition that a column contains a text, ignoring case (SQLite: ASCII only).

    Return the cheapest equivalent form, because it may be evaluated for every row of a long list.
    """
    text = column if isinstance(column.type, sa.String) else sa.cast(column, sa.String)
    has_no_letters = value.isascii() and not any(map(str.isalpha, value))
    if is_sqlite or has_no_letters:
        # lower() is not needed: SQLite's LIKE ignores the case of ASCII letters, and other values
        # have no case.
        return text.contains(value, autoescape=True)
    if value.isascii():
        # lower() takes several times as long with a Unicode collation as with "C".
        text = sa.collate(text, "C")
    return sa.func.lower(text).contains(value.lower(), autoescape=True)


def _typed(column: sa.ColumnElement[Any], text: str, name: str) -> Any:
    """Convert a filter's text to the column's type.

    A time without a zone is UTC.

    Raises
    ------
    InvalidRequest
        If the text is not a value of that type, or the type cannot be compared (JSON).
    """
    kind = column.type
    if isinstance(kind, sa.TypeDecorator):
        kind = kind.impl_instance
    try:
        if isinstance(kind, sa.Boolean):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(kind, sa.DateTime):
            time = datetime.fromisoformat(text)
            return time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
        if isinstance(kind, sa.String):
            # PostgreSQL rejects a NUL, and no stored text contains one.
            if "\0" in text:
                raise ValueError(text)
            return text
        if isinstance(kind, sa.Integer):
            number = read_whole(text.removeprefix("-"))
            if number is None or number >= 2**63:
                raise ValueError(text)
            return -number if text.startswith("-") else number
        raise ValueError(text)
    except (ValueError, KeyError, OverflowError) as error:
        raise InvalidRequest(
            f"{shown(text)!r} is not a valid value for the filter {name}", filter=name
        ) from error
