"""Bulk statements: update, lock or insert many rows, on SQLite or PostgreSQL.

PostgreSQL receives all rows as arrays in one statement. SQLite runs the statement once per row,
without round trips. Create these objects at import: building a statement takes longer than running
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

Values = Mapping[str, sa.ColumnElement[Any]]
Row = tuple[Any, ...]


class RowUpdate:
    """A bulk UPDATE with one row of values per updated row.

    ``kinds`` maps the name of each value to its type, in the order of the values in a row.
    ``statement`` builds the UPDATE; its argument maps the name of each value to an expression.
    """

    def __init__(self, kinds: Mapping[str, Any], statement: Callable[[Values], sa.Update]) -> None:
        self._source = _Source(kinds)
        self._at_once = statement(self._source.rows.c)
        # SQLAlchemy would use a parameter with the name of a column as the column's new value.
        self._keys = [f"v_{name}" for name in kinds]
        self._each = statement(
            {name: sa.bindparam(f"v_{name}", type_=kind) for name, kind in kinds.items()}
        )

    async def run(self, tx: AsyncConnection, rows: Sequence[Row]) -> int:
        """Run the UPDATE; return the number of updated rows of the table."""
        if not rows:
            return 0
        if tx.dialect.name == "postgresql":
            result = await tx.execute(self._at_once, self._source.values(rows))
        else:
            each = [dict(zip(self._keys, row, strict=True)) for row in rows]
            result = await tx.execute(self._each, each)
        return result.rowcount


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
    same value in all rows. With ``ignores``, rows that already exist are skipped.
    """

    def __init__(
        self, table: sa.Table, names: Sequence[str], same: Sequence[str] = (), ignores: bool = False
    ) -> None:
        self._names = names
        self._source = _Source({name: table.c[name].type for name in names})
        shared = [sa.bindparam(f"same_{name}", type_=table.c[name].type) for name in same]
        at_once = postgresql.insert(table).from_select(
            [*names, *same], sa.select(*self._source.rows.c, *shared)
        )
        each = sqlite.insert(table)
        self._at_once = at_once.on_conflict_do_nothing() if ignores else at_once
        self._each = each.on_conflict_do_nothing() if ignores else each

    async def run(self, tx: AsyncConnection, rows: Sequence[Row], **same: Any) -> None:
        if not rows:
            return
        if tx.dialect.name == "postgresql":
            once = {f"same_{name}": value for name, value in same.items()}
            await tx.execute(self._at_once, self._source.values(rows) | once)
        else:
            names, shared = (*self._names, *same), tuple(same.values())
            each = [dict(zip(names, row + shared, strict=True)) for row in rows]
            await tx.execute(self._each, each)


class Among(FunctionElement[bool]):
    """The condition that a column has one of the values in the parameter ``name``.

    PostgreSQL receives the values as one array. ``IN`` with one parameter per value would be
    rendered again for each call, and would be a different prepared statement for each number of
    values.
    """

    # No ``type``: for a boolean type, SQLAlchemy would render ``= 1`` on SQLite, which prevents the
    # use of an index.
    inherit_cache = True

    def __init__(self, column: sa.ColumnElement[Any], name: str) -> None:
        array = _array(name, column.type)
        super().__init__(
            column.in_(sa.bindparam(name, expanding=True)),
            column.in_(sa.select(sa.func.unnest(array))),
        )


@compiles(Among)
def _as_list(element: Among, compiler: Any, **more: Any) -> str:
    return str(compiler.process(element.clauses.clauses[0], **more))


@compiles(Among, "postgresql")
def _as_array(element: Among, compiler: Any, **more: Any) -> str:
    return str(compiler.process(element.clauses.clauses[1], **more))


class _Source:
    """Rows of values as a table expression (unnest) in a PostgreSQL statement."""

    def __init__(self, kinds: Mapping[str, Any]) -> None:
        self._names = [f"all_{name}" for name in kinds]
        arrays = [_array(f"all_{name}", sa.types.to_instance(kind)) for name, kind in kinds.items()]
        self.rows: Any = sa.func.unnest(*arrays).table_valued(*kinds).render_derived(name="given")

    def values(self, rows: Sequence[Row]) -> dict[str, list[Any]]:
        columns = zip(*rows, strict=True)
        return {name: list(column) for name, column in zip(self._names, columns, strict=True)}


def _array(name: str, kind: sa.types.TypeEngine[Any]) -> sa.BindParameter[Any]:
    # The type has no length: a cast to VARCHAR(n) would truncate a longer value instead of
    # rejecting it.
    plain = sa.String() if isinstance(kind, sa.String) else kind
    return sa.bindparam(name, type_=postgresql.ARRAY(plain, dimensions=1))
