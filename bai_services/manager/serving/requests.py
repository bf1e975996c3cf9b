"""The session requests of replicas."""

from __future__ import annotations

from typing import Any

from bai_services.core.folders.vfolders import Permission
from bai_services.core.serving.settings import MODEL_MOUNT, RevisionSettings
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.spec import SessionSpec, spec_of

_NAME_CHARACTERS = 40
_ID_CHARACTERS = 8


def replica_name(endpoint: str, replica_id: str) -> str:
    """Return the name of the session of a replica."""
    return f"{endpoint[:_NAME_CHARACTERS]}-{replica_id[:_ID_CHARACTERS]}"


def replica_spec(settings: RevisionSettings, project: str | None, name: str | None) -> SessionSpec:
    """Return the request for the session of a replica; all its folders are read-only."""
    request: dict[str, Any] = dict(settings.request)
    mounts = [dict(mount, permission=Permission.RO) for mount in request.get("mounts") or ()]
    if settings.model_folder:
        model = {"vfolder": settings.model_folder, "path": MODEL_MOUNT, "permission": Permission.RO}
        mounts.append(model)
    return spec_of(
        {
            **request,
            "mounts": mounts,
            "name": name,
            "project": project,
            "type": SessionType.INFERENCE,
            "startup_command": settings.command,
        }
    )
