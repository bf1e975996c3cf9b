"""Bulk statements on SQLite and PostgreSQL."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from bai_services.db.bulk import Among, RowInsert, RowUpdate
from bai_services.db.database import Database
from bai_services.db.tables.sessions import sessions

TEXTS = ["", "NULL", 'a "quoted" word', "back\\slash\\", "{a,b}", " two\nlines\t", "ก 한 é '", None]


async def test_all_values_are_stored_unchanged(database_url: str) -> None:
    things = sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("text", sa.String(64)),
        sa.Column("json", sa.JSON(none_as_null=True)),
        sa.Column("json_null", sa.JSON),
    )
    rows = [
        (at - 2**62, text, None if text is None else {"key": [text, at]}, text)
        for at, text in enumerate(TEXTS)
    ]
    update = RowUpdate(
        {"number": sa.BigInteger(), "text": sa.String()},
        lambda v: sa.update(things).where(things.c.number == v["number"]).values(text=v["text"]),
    )
    database = Database(database_url)
    try:
        async with database.write() as tx:
            await tx.run_sync(things.create)
            await RowInsert(things, ["number", "text", "json", "json_null"]).run(tx, rows)
        async with database.read() as tx:
            select = sa.select(things).order_by(things.c.number)
            assert [tuple(row) for row in await tx.execute(select)] == rows
            no_json = sa.select(things.c.number).where(things.c.json.is_(sa.null()))
            assert (await tx.execute(no_json)).scalars().all() == [rows[-1][0]]
        async with database.write() as tx:
            changed = [(row[0], text) for row, text in zip(rows, reversed(TEXTS), strict=True)]
            assert await update.run(tx, changed) == len(rows)
            select = sa.select(things.c.number, things.c.text).order_by(things.c.number)
            assert [tuple(row) for row in await tx.execute(select)] == changed
    finally:
        await database.close()


def test_among_compiles_to_in_on_sqlite_and_any_on_postgres() -> None:
    """With either form, the database can use an index on the column."""
    select = sa.select(sessions.c.id)
    plain = select.where(sessions.c.id.in_(sa.bindparam("ids", expanding=True)))
    among = select.where(Among(sessions.c.id, "ids"))
    assert str(among.compile(dialect=sqlite.dialect())) == str(
        plain.compile(dialect=sqlite.dialect())
    )
    text = str(among.compile(dialect=postgresql.dialect()))
    assert text.endswith("WHERE sessions.id = ANY (%(ids)s::VARCHAR[])")
