"""Bulk statements: update, lock or insert many rows, on SQLite or PostgreSQL.

PostgreSQL receives all rows as arrays in one statement. SQLite runs the statement once per row,
without round trips. Create these objects at import: building a statement takes longer than running
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

Values = Mapping[str, sa.ColumnElement[Any]]
Row = tuple[Any, ...]
Upsert = postgresql.Insert | sqlite.Insert

_PREFIX = "v_"


class RowUpdate:
    """A bulk UPDATE; each updated row has its own values.

    ``kinds`` maps the name of each value to its type, in the order of the values in a row.
    ``statement`` builds the UPDATE; its argument maps the name of each value to an expression.
    """

    def __init__(self, kinds: Mapping[str, Any], statement: Callable[[Values], sa.Update]) -> None:
        self._source = _Source(kinds)
        self._at_once = statement(self._source.rows.c)
        self._each = _ForEachRow(statement(_parameters(kinds)), kinds)

    async def run(self, tx: AsyncConnection, rows: Sequence[Row]) -> int:
        """Run the UPDATE; return the number of updated rows of the table."""
        if not rows:
            return 0
        if tx.dialect.name == "postgresql":
            return (await tx.execute(self._at_once, self._source.values(rows))).rowcount
        return await self._each.run(tx, rows)


class RowLock:
    """Locks rows in the order of their keys, to avoid deadlocks.

    No effect on SQLite, which has a single writer.
    """

    def __init__(self, table: sa.Table, keys: Mapping[str, Any]) -> None:
        self._source = _Source(keys)
        wanted = self._source.rows.alias("wanted")
        self._select = (
            sa.select(sa.literal(1))
            .select_from(
                table.join(wanted, sa.and_(*(table.c[name] == wanted.c[name] for name in keys)))
            )
            .order_by(*(table.c[name] for name in keys))
            .with_for_update(of=table)
        )

    async def run(self, tx: AsyncConnection, rows: Sequence[Row]) -> None:
        """Lock the rows with these keys."""
        if tx.dialect.name == "postgresql" and rows:
            await tx.execute(self._select, self._source.values(rows))


class RowInsert:
    """A bulk INSERT.

    ``names`` are the columns of the values in a row, in order. The columns in ``same`` have the
    same value in all rows. With ``ignores``, existing rows are skipped.
    """

    def __init__(
        self, table: sa.Table, names: Sequence[str], same: Sequence[str] = (), ignores: bool = False
    ) -> None:
        self._same = same
        self._source = _Source({name: table.c[name].type for name in names})
        shared = [sa.bindparam(f"same_{name}", type_=table.c[name].type) for name in same]
        at_once = postgresql.insert(table).from_select(
            [*names, *same], sa.select(*self._source.rows.c, *shared)
        )
        columns = {name: table.c[name].type for name in [*names, *same]}
        each = sqlite.insert(table).values(_parameters(columns))
        self._at_once = at_once.on_conflict_do_nothing() if ignores else at_once
        self._each = _ForEachRow(each.on_conflict_do_nothing() if ignores else each, columns)

    async def run(self, tx: AsyncConnection, rows: Sequence[Row], **same: Any) -> None:
        if not rows:
            return
        if tx.dialect.name == "postgresql":
            once = {f"same_{name}": value for name, value in same.items()}
            await tx.execute(self._at_once, self._source.values(rows) | once)
        else:
            shared = tuple(same[name] for name in self._same)
            await self._each.run(tx, [row + shared for row in rows])


class RowInsertSelect:
    """A bulk INSERT … SELECT: one SELECT per row of values.

    ``kinds`` is the same as for ``RowUpdate``. ``statement`` builds the INSERT from an empty INSERT
    of the dialect and the values (see ``RowUpdate``).
    """

    def __init__(
        self,
        table: sa.Table,
        kinds: Mapping[str, Any],
        statement: Callable[[Upsert, Values], sa.Insert],
    ) -> None:
        self._source = _Source(kinds)
        self._at_once = statement(postgresql.insert(table), self._source.rows.c)
        self._each = _ForEachRow(statement(sqlite.insert(table), _parameters(kinds)), kinds)

    async def run(self, tx: AsyncConnection, rows: Sequence[Row]) -> None:
        """Run the INSERT. On PostgreSQL, an upsert must not contain a key twice."""
        if not rows:
            return
        if tx.dialect.name == "postgresql":
            await tx.execute(self._at_once, self._source.values(rows))
        else:
            await self._each.run(tx, rows)


class Among(FunctionElement[bool]):
    """The condition that a column has one of the values in the parameter ``name``.

    PostgreSQL receives the values as one array. ``IN`` with one parameter per value would be
    rendered for each call, with a different prepared statement for each number of values.
    """

    # No ``type``: for a boolean type, SQLAlchemy would render ``= 1`` on SQLite, which prevents the
    # use of an index.
    inherit_cache = True

    def __init__(self, column: sa.ColumnElement[Any], name: str) -> None:
        array = _array(name, column.type)
        super().__init__(
            column.in_(sa.bindparam(name, expanding=True)),
            column == sa.any_(array),
        )


@compiles(Among)
def _as_list(element: Among, compiler: Any, **more: Any) -> str:
    return str(compiler.process(element.clauses.clauses[0], **more))


@compiles(Among, "postgresql")
def _as_array(element: Among, compiler: Any, **more: Any) -> str:
    return str(compiler.process(element.clauses.clauses[1], **more))


class Likely(FunctionElement[bool]):
    """A condition that is true for most rows that the other conditions select.

    Databases assume that few rows have a given status (SQLite always, PostgreSQL with outdated
    statistics). Therefore they would read all rows with this status, even if a list of ids is
    given. The form ``… IS TRUE`` prevents this, because no index can be used for it.
    """

    inherit_cache = True

    def __init__(self, condition: sa.ColumnElement[bool]) -> None:
        super().__init__(condition)


@compiles(Likely)
def _with_hint(element: Likely, compiler: Any, **more: Any) -> str:
    return f"likely({compiler.process(element.clauses.clauses[0], **more)})"


@compiles(Likely, "postgresql")
def _with_is_true(element: Likely, compiler: Any, **more: Any) -> str:
    return f"({compiler.process(element.clauses.clauses[0], **more)}) IS TRUE"


def _parameters(kinds: Mapping[str, Any]) -> dict[str, sa.BindParameter[Any]]:
    # Without the prefix, SQLAlchemy would use a parameter with the name of a column as the column's
    # new value.
    return {name: sa.bindparam(_PREFIX + name, type_=kind) for name, kind in kinds.items()}


class _ForEachRow:
    """A statement that SQLite runs once per row of values.

    The values are converted here, because SQLAlchemy would need more time to convert a row than
    SQLite needs to write it. ``names`` are the names of the values of a row, in order; see
    ``_parameters``.
    """

    def __init__(self, statement: sa.Insert | sa.Update, names: Iterable[str]) -> None:
        self._statement = statement
        self._names = [_PREFIX + name for name in names]
        self._compiled: tuple[str, Callable[[Row], Row]] | None = None

    async def run(self, tx: AsyncConnection, rows: Sequence[Row]) -> int:
        """Return the number of changed rows of the table."""
        if self._compiled is None:
            self._compiled = self._compile(tx.dialect)
        text, convert = self._compiled
        return (await tx.exec_driver_sql(text, [convert(row) for row in rows])).rowcount

    def _compile(self, dialect: sa.Dialect) -> tuple[str, Callable[[Row], Row]]:
        """Return the SQL text, and a function that converts a row to positional parameters."""
        compiled: Any = self._statement.compile(dialect=dialect)
        parameters = [compiled.binds[name] for name in compiled.positiontup]
        converters = [one.type.dialect_impl(dialect).bind_processor(dialect) for one in parameters]
        # Constant parameters, such as ``Status.PENDING`` in a condition, follow the values of the
        # row.
        constants = [one for one in parameters if one.key not in self._names]
        keys = [*self._names, *(one.key for one in constants)]
        same = tuple(one.effective_value for one in constants)
        columns = [
            (keys.index(one.key), to) for one, to in zip(parameters, converters, strict=True)
        ]

        def convert(row: Row) -> Row:
            row += same
            return tuple([row[at] if to is None else to(row[at]) for at, to in columns])

        return str(compiled), convert


class _Source:
    """Rows of values as a table expression (unnest) in a PostgreSQL statement."""

    def __init__(self, kinds: Mapping[str, Any]) -> None:
        self._names = [f"all_{name}" for name in kinds]
        arrays = [_array(f"all_{name}", sa.types.to_instance(kind)) for name, kind in kinds.items()]
        self.rows: Any = sa.func.unnest(*arrays).table_valued(*kinds).render_derived(name="given")

    def values(self, rows: Sequence[Row]) -> dict[str, list[Any]]:
        columns = zip(*rows, strict=True)
        return {name: list(column) for name, column in zip(self._names, columns, strict=True)}


class _TextArray(sa.types.TypeDecorator[Any]):
    """An array that is sent in PostgreSQL's text format.

    The driver would inspect each element with regular expressions, which takes longer than
    inserting the element.
    """

    impl = postgresql.ARRAY
    cache_ok = True

    def __init__(self, item: sa.String | sa.Integer | sa.JSON) -> None:
        super().__init__(item, dimensions=1)
        self.item = item

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], str]:
        item = self.item

        def to_text(values: Sequence[Any]) -> str:
            if isinstance(item, sa.JSON):
                values = [
                    None if value is None and item.none_as_null else json.dumps(value)
                    for value in values
                ]
            return "{" + ",".join(map(_element, values)) + "}"

        return to_text


def _element(value: str | int | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _array(name: str, kind: sa.types.TypeEngine[Any]) -> sa.BindParameter[Any]:
    # The type has no length: a cast to VARCHAR(n) would truncate a longer value instead of
    # rejecting it.
    plain = sa.String() if isinstance(kind, sa.String) else kind
    if isinstance(plain, sa.String | sa.Integer | sa.JSON):
        return sa.bindparam(name, type_=_TextArray(plain))
    return sa.bindparam(name, type_=postgresql.ARRAY(plain, dimensions=1))
