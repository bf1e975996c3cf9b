"""Run the migrations on the connection from ``schema.py``."""

from __future__ import annotations

from typing import Any, Literal

import sqlalchemy as sa
from alembic import context

from bai_services.db.tables import metadata


def render_item(kind: str, item: Any, autogen_context: object) -> str | Literal[False]:
    """Render our own column types as their underlying types.

    The effect of a migration must stay the same when our types change later.
    """
    if kind == "type" and isinstance(item, sa.types.TypeDecorator):
        return "sa.JSON()" if isinstance(item.impl_instance, sa.JSON) else "sa.DateTime()"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot change the type of a column in place, so the table is copied.
    render_as_batch=True,
    compare_type=True,
    render_item=render_item,
)
context.run_migrations()
