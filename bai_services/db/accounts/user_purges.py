"""Remove the data of a user, except the data to which statistics and the audit log refer."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.user_purges import PURGED, OwnedFolder, anonymous_name
from bai_services.core.audit import AuditEntry
from bai_services.core.cluster.custom_images import Visibility
from bai_services.core.errors import Conflict
from bai_services.core.folders.vfolders import VfolderStatus

from ..audit import record
from ..cluster.deleted_custom_images import record_deleted
from ..database import Database
from ..records import records
from ..serving.routes_version import bump_routes
from ..sessions import attempt_logs
from ..tables.accounts import keypairs, known_sign_in_addresses, memberships, users
from ..tables.advance_reservations import advance_reservations
from ..tables.apps import app_shares
from ..tables.chats import chats
from ..tables.cluster import custom_images, image_aliases, image_pulls, images
from ..tables.external_identities import external_identities
from ..tables.folders import vfolder_grants, vfolder_invitations, vfolders
from ..tables.idle_checks import idle_checker_bindings, idle_decisions
from ..tables.imports import folder_imports
from ..tables.mails import mails
from ..tables.models import model_imports
from ..tables.notifications import (
    notification_events,
    notification_mails,
    notification_settings,
    notifications,
    webhooks,
)
from ..tables.one_time_codes import one_time_codes
from ..tables.operations import (
    announcement_dismissals,
    announcements,
    maintenances,
    setting_overrides,
)
from ..tables.pipelines import (
    pipeline_runs,
    pipeline_schedules,
    pipeline_templates,
    pipeline_triggers,
    pipelines,
)
from ..tables.resizes import session_resizes
from ..tables.schedules import session_schedules
from ..tables.self_service import password_resets
from ..tables.serving import endpoint_tokens, endpoint_trials, endpoints
from ..tables.sessions import kernels, session_templates, sessions, status_history
from ..tables.setups import session_secrets, setups
from ..tables.ssh_keys import ssh_keys
from ..tables.suspensions import session_suspensions
from .checked_users import CheckedUser, lock_unchanged

# A purge deletes all rows that have the user's id in one of these columns.
_OWNED = (
    keypairs.c.user_id,
    memberships.c.user_id,
    known_sign_in_addresses.c.user_id,
    external_identities.c.user_id,
    one_time_codes.c.user_id,
    announcement_dismissals.c.user_id,
    password_resets.c.user_id,
    ssh_keys.c.user_id,
    session_templates.c.owner_id,
    vfolder_grants.c.user_id,
    vfolder_invitations.c.invitee_id,
    vfolder_invitations.c.inviter_id,
    app_shares.c.user_id,
    setups.c.user_id,
    session_schedules.c.owner_id,
    custom_images.c.owner_id,
    endpoints.c.owner_id,
    pipelines.c.owner_id,
    pipeline_runs.c.owner_id,
    pipeline_schedules.c.owner_id,
    pipeline_triggers.c.owner_id,
    pipeline_templates.c.owner_id,
    endpoint_tokens.c.user_id,
    chats.c.user_id,
    endpoint_trials.c.owner_id,
    model_imports.c.owner_id,
    folder_imports.c.owner_id,
    notification_mails.c.user_id,
    notification_settings.c.user_id,
    notifications.c.user_id,
    notification_events.c.user_id,
    webhooks.c.owner_id,
)
# Columns with names of users, which an anonymous name replaces.
_NAMES = (
    advance_reservations.c.decided_by,
    announcements.c.author,
    image_pulls.c.requested_by,
    maintenances.c.author,
    session_resizes.c.by,
    session_suspensions.c.requested_by,
    setting_overrides.c.changed_by,
)
# Statuses in which a background task deletes the files or transfers them to the new owner.
_LEAVING = (VfolderStatus.DELETE_ONGOING, VfolderStatus.DELETE_COMPLETE, VfolderStatus.PERFORMING)


class UserPurgeStore:
    """Purges users. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def folders_of(self, user_id: str) -> list[OwnedFolder]:
        """Return the folders that a user owns, by name."""
        is_shared = sa.exists().where(vfolder_grants.c.vfolder_id == vfolders.c.id)
        async with self._db.read() as tx:
            rows = await tx.execute(
                sa.select(
                    vfolders.c.id, vfolders.c.name, vfolders.c.status, is_shared.label("is_shared")
                )
                .where(vfolders.c.owner_id == user_id)
                .order_by(vfolders.c.name, vfolders.c.id)
            )
            return records(_folder, rows)

    async def folder_names_of(self, user_id: str) -> set[str]:
        """Return the names of a user's folders that are not in the trash."""
        async with self._db.read() as tx:
            names = await tx.scalars(
                sa.select(vfolders.c.live_name).where(
                    vfolders.c.scope == f"user:{user_id}", vfolders.c.live_name.is_not(None)
                )
            )
            return set(names)

    async def require_purgeable(self, user_id: str) -> None:
        """Raise ``Conflict`` if the user has live sessions or is not yet signed out of the Hub."""
        async with self._db.read() as tx:
            await _require_purgeable(tx, user_id)

    async def purge(self, checked: CheckedUser, email: str, audit: AuditEntry) -> None:
        """Delete the data of a user and make the account anonymous.

        Ended sessions remain, without command, environment, callback and output.

        Raises
        ------
        Conflict
            If the user has changed since the check, has live sessions or folders, or is not yet
            signed out of the Hub.
        """
        user_id, name = checked.id, anonymous_name(checked.id)
        own_sessions = sa.select(sessions.c.id).where(sessions.c.owner_id == user_id)
        async with self._db.write() as tx:
            await lock_unchanged(tx, checked)
            await _require_purgeable(tx, user_id)
            await _require_no_folders(tx, user_id)
            username = await tx.scalar(sa.select(users.c.username).where(users.c.id == user_id))
            await _delete_custom_images(tx, user_id)
            for column in _OWNED:
                await tx.execute(sa.delete(column.table).where(column == user_id))
            await bump_routes(tx)
            for table in (app_shares, session_secrets):
                await tx.execute(table.delete().where(table.c.session_id.in_(own_sessions)))
            await _remove_name(tx, user_id, str(username), name)
            await tx.execute(
                idle_checker_bindings.delete().where(
                    idle_checker_bindings.c.scope == "user",
                    idle_checker_bindings.c.scope_id == user_id,
                )
            )
            await tx.execute(mails.delete().where(mails.c.recipient == email))
            own_kernels = sa.select(kernels.c.id).where(kernels.c.session_id.in_(own_sessions))
            await attempt_logs.remove(tx, own_kernels)
            await tx.execute(
                kernels.update().where(kernels.c.session_id.in_(own_sessions)).values(log=None)
            )
            await tx.execute(
                idle_decisions.update()
                .where(idle_decisions.c.session_id.in_(own_sessions))
                .values(owner=name)
            )
            await tx.execute(
                sessions.update()
                .where(sessions.c.owner_id == user_id)
                .values({**_EMPTY, "hub_user": name})
            )
            await tx.execute(
                users.update()
                .where(users.c.id == user_id)
                .values(
                    username=name,
                    email=f"{name}@invalid",
                    password_hash=None,
                    full_name="",
                    description="",
                    status=PURGED,
                    status_info="",
                    allowed_client_ip=None,
                    main_access_key=None,
                )
            )
            await record(tx, audit)


# Columns of ended sessions that may contain data of the owner, with their values after a purge.
_EMPTY: dict[str, Any] = {
    "environ": {},
    "startup_command": None,
    "callback_url": None,
    "notices": [],
}


def _folder(*, status: str, is_shared: bool, **columns: Any) -> OwnedFolder:
    return OwnedFolder(status=VfolderStatus(status), is_shared=bool(is_shared), **columns)


async def _remove_name(tx: AsyncConnection, user_id: str, username: str, name: str) -> None:
    """Replace a user's name in rows of other users' objects; clear reasons that contain it."""
    reservations = advance_reservations
    await tx.execute(
        reservations.update().where(reservations.c.author_id == user_id).values(author=name)
    )
    for column in _NAMES:
        changed = sa.update(column.table).where(column == username)
        await tx.execute(changed.values({column.name: name}))
    # For example "stopped by NAME".
    own_sessions = sa.select(sessions.c.id).where(sessions.c.owner_id == user_id)
    await tx.execute(
        status_history.update()
        .where(
            status_history.c.session_id.in_(own_sessions),
            status_history.c.reason.contains(f"by {username}", autoescape=True),
        )
        .values(reason="", reason_coded=None)
    )
    await tx.execute(
        sessions.update()
        .where(
            sessions.c.owner_id == user_id,
            sessions.c.status_info.contains(f"by {username}", autoescape=True),
        )
        .values(status_info="", status_coded=None)
    )


async def _require_purgeable(tx: AsyncConnection, user_id: str) -> None:
    live = await tx.scalar(
        sa.select(sa.func.count())
        .select_from(sessions)
        .where(sessions.c.owner_id == user_id, sessions.c.live_name.is_not(None))
    )
    if live:
        raise Conflict(f"the user has {live} sessions that have not ended yet; stop them first")
    row = (
        await tx.execute(
            sa.select(users.c.needs_hub_sign_out, users.c.tokens_to_end).where(
                users.c.id == user_id
            )
        )
    ).one()
    if row.needs_hub_sign_out or row.tokens_to_end is not None:
        raise Conflict("the user is still being signed out of the Hub; try again in a minute")


async def _require_no_folders(tx: AsyncConnection, user_id: str) -> None:
    name = await tx.scalar(
        sa.select(vfolders.c.name)
        .where(vfolders.c.owner_id == user_id, vfolders.c.status.not_in(_LEAVING))
        .limit(1)
    )
    if name is not None:
        raise Conflict(f"the user still owns folder {name}; try again")
    name = await tx.scalar(
        sa.select(vfolders.c.name).where(vfolders.c.next_owner_id == user_id).limit(1)
    )
    if name is not None:
        raise Conflict(f"folder {name} is being transferred to the user; try again when it is done")


async def _delete_custom_images(tx: AsyncConnection, user_id: str) -> None:
    """Delete a user's custom images, except those that a superadmin has published."""
    of_user = (custom_images.c.owner_id == user_id) & (
        custom_images.c.visibility != Visibility.PUBLIC
    )
    own = sa.select(custom_images.c.image_id).where(of_user)
    await record_deleted(tx, of_user)
    await tx.execute(image_aliases.delete().where(image_aliases.c.image_id.in_(own)))
    await tx.execute(images.delete().where(images.c.id.in_(own)))
