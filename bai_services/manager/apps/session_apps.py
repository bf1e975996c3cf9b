"""The apps that a session offers."""

from __future__ import annotations

from collections.abc import Sequence

from bai_services.core.accounts.roles import Caller
from bai_services.core.apps.catalogue import SessionApp, apps_of
from bai_services.core.cluster.image_labels import parse_labels
from bai_services.core.sessions.agent_launch import is_openable
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.resolved_spec import ResolvedSpec
from bai_services.db.cluster.images import ImageStore
from bai_services.db.database import Database

from ..sessions.sessions import Sessions
from ..sessions.view import preopened_ports


class SessionApps:
    """Derives the apps from the image and the requested ports, without a request to the session."""

    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._images = ImageStore(database)
        self._sessions = sessions

    async def of(self, caller: Caller, key: str) -> Sequence[SessionApp]:
        """Return the apps of a session; empty if the session cannot be opened."""
        row = await self._sessions.find_visible(caller, key)
        is_batch = row.type == SessionType.BATCH and is_openable(row.type, row.started_by)
        if row.type != SessionType.INTERACTIVE and not is_batch:
            return ()
        return await image_apps(self._images, row)


async def image_apps(images: ImageStore, spec: ResolvedSpec) -> Sequence[SessionApp]:
    """Return the apps that an open session with this spec offers."""
    named = await images.named(spec.image)
    labels = next((i.labels for i in named if i.architecture == spec.architecture), {})
    return apps_of(parse_labels(labels).service_ports, preopened_ports(spec.environ))
