"""Runs the migrations on the connection that ``schema.py`` hands over."""

from __future__ import annotations

from typing import Any, Literal

import sqlalchemy as sa
from alembic import context

from bai_services.db.tables import metadata


def render_item(kind: str, item: Any, autogen_context: object) -> str | Literal[False]:
    """Write our own column types as what they are in the database.

    A migration must mean the same for ever, whatever becomes of the types.
    """
    if kind == "type" and isinstance(item, sa.types.TypeDecorator):
        return "sa.JSON()" if isinstance(item.impl_instance, sa.JSON) else "sa.DateTime()"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot alter most things in place: its tables are copied.
    render_as_batch=True,
    compare_type=True,
    render_item=render_item,
)
context.run_migrations()
