"""Statements for many rows, on either database."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from bai_services.db.setwise import Among
from bai_services.db.tables.sessions import sessions


def test_condition_on_many_values_uses_the_index() -> None:
    """As a list of parameters on SQLite, where it is bound at each call, and as one array on
    PostgreSQL.
    """
    select = sa.select(sessions.c.id)
    plain = select.where(sessions.c.id.in_(sa.bindparam("ids", expanding=True)))
    among = select.where(Among(sessions.c.id, "ids"))
    assert str(among.compile(dialect=sqlite.dialect())) == str(
        plain.compile(dialect=sqlite.dialect())
    )
    text = str(among.compile(dialect=postgresql.dialect()))
    assert text.endswith("WHERE sessions.id IN (SELECT unnest(%(ids)s::VARCHAR[]) AS unnest_1)")
