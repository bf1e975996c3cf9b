"""Delete tokens of the chat page for endpoints that the user may no longer use."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ..tables.accounts import memberships, users
from ..tables.serving import endpoint_tokens, endpoints

# The user of a chat token is active and still a member of the endpoint's project, or
# owns the endpoint.
MAY_USE_CHAT_TOKEN = sa.exists().where(
    users.c.id == endpoint_tokens.c.user_id,
    users.c.status == "active",
    endpoints.c.id == endpoint_tokens.c.endpoint_id,
    (endpoints.c.owner_id == users.c.id)
    | sa.exists().where(
        memberships.c.user_id == users.c.id, memberships.c.project_id == endpoints.c.project_id
    ),
)


async def delete_unusable_chat_tokens(tx: AsyncConnection, user_id: str) -> None:
    """Delete the chat tokens that a user may no longer use.

    They are deleted because they must not become valid again when the user rejoins the project or
    is reactivated.
    """
    await tx.execute(
        sa.delete(endpoint_tokens).where(endpoint_tokens.c.user_id == user_id, ~MAY_USE_CHAT_TOKEN)
    )
