"""One statement for many rows, on either database.

PostgreSQL gets all rows as arrays in one statement. SQLite runs the statement once per row, which
costs no round trip there. Both statements are built once, when a module is loaded: building one
costs more than running it.
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
    """An UPDATE for each of many rows of values.

    ``kinds`` maps the name of each value to its type, in the order of the
    values; ``statement`` gets them as columns.
    """

    def __init__(self, kinds: Mapping[str, Any], statement: Callable[[Values], sa.Update]) -> None:
        self._source = _Source(kinds)
        self._at_once = statement(self._source.rows.c)
        # The plain column name would mean the column's new value.
        self._keys = [f"v_{name}" for name in kinds]
        self._each = statement(
            {name: sa.bindparam(f"v_{name}", type_=kind) for name, kind in kinds.items()}
        )

    async def run(self, tx: AsyncConnection, rows: Sequence[Row]) -> int:
        """Update and return how many rows of the table have changed."""
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

    SQLite has a single writer and nothing to lock.
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
    """An INSERT of many rows.

    ``names`` are the columns whose values each row has, in their order; the columns in ``same``
    have one value for all rows. With ``ignores`` existing rows are skipped.
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
    """The condition that a column has one of the values of the parameter ``name``.

    PostgreSQL gets them as one array. A list of parameters would be rendered again for each call,
    and processed for each row once the statement is prepared.
    """

    # Without a type: for a boolean one SQLite would compare with 1, and use no index.
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
    """Rows of values as a table of one PostgreSQL statement."""

    def __init__(self, kinds: Mapping[str, Any]) -> None:
        self._names = [f"all_{name}" for name in kinds]
        arrays = [_array(f"all_{name}", sa.types.to_instance(kind)) for name, kind in kinds.items()]
        self.rows: Any = sa.func.unnest(*arrays).table_valued(*kinds).render_derived(name="given")

    def values(self, rows: Sequence[Row]) -> dict[str, list[Any]]:
        columns = zip(*rows, strict=True)
        return {name: list(column) for name, column in zip(self._names, columns, strict=True)}


def _array(name: str, kind: sa.types.TypeEngine[Any]) -> sa.BindParameter[Any]:
    # Without a length: PostgreSQL would truncate a longer value, where the column itself refuses
    # it.
    plain = sa.String() if isinstance(kind, sa.String) else kind
    return sa.bindparam(name, type_=postgresql.ARRAY(plain, dimensions=1))
