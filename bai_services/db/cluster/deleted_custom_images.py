"""Record the deletion of custom images, whose copies agents must remove."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ..tables.cluster import custom_images, deleted_custom_images


async def record_deleted(tx: AsyncConnection, of_rows: sa.ColumnElement[bool]) -> None:
    """Record the names of the custom images that the caller deletes in this transaction.

    Agents remove copies only by these records, not because the database has no custom image of that
    name: after the restoration of a backup, later commits are missing in the database.
    """
    is_recorded = sa.exists().where(deleted_custom_images.c.image == custom_images.c.image)
    names = sa.select(custom_images.c.image).where(of_rows, ~is_recorded).distinct()
    await tx.execute(deleted_custom_images.insert().from_select(["image"], names))
