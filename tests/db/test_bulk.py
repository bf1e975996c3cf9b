"""Bulk statements on SQLite and PostgreSQL."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from bai_services.db.bulk import Among
from bai_services.db.tables.sessions import sessions


def test_among_is_a_list_on_sqlite_and_an_array_on_postgres() -> None:
    """With either form, the database can use an index on the column."""
    select = sa.select(sessions.c.id)
    plain = select.where(sessions.c.id.in_(sa.bindparam("ids", expanding=True)))
    among = select.where(Among(sessions.c.id, "ids"))
    assert str(among.compile(dialect=sqlite.dialect())) == str(
        plain.compile(dialect=sqlite.dialect())
    )
    text = str(among.compile(dialect=postgresql.dialect()))
    assert text.endswith("WHERE sessions.id = ANY (%(ids)s::VARCHAR[])")
