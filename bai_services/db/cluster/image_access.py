"""Condition on the images that a user may use: custom images belong to users."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from bai_services.core.cluster.custom_images import Visibility

from ..tables.cluster import custom_images, images


def is_image_allowed(user_id: Any, is_member: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the condition that a user may use an image: it is not a custom image, or one that is
    visible to the user.

    ``is_member``: the condition that the user is a member of the image's project.
    """
    allowed = [
        custom_images.c.visibility == Visibility.PUBLIC,
        custom_images.c.owner_id == user_id,
        (custom_images.c.visibility == Visibility.PROJECT) & is_member,
    ]
    return ~sa.exists().where(custom_images.c.image_id == images.c.id, ~sa.or_(*allowed))
