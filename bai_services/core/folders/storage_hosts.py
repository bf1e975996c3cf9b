"""What may be done with folders on a storage host, as domains, projects and policies allow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import InvalidRequest
from ..user_input import shown

PERMISSIONS = (
    "create-vfolder",
    "modify-vfolder",
    "delete-vfolder",
    "mount-in-session",
    "upload-file",
    "download-file",
    "invite-others",
    "set-user-specific-permission",
)

# The storage host of this machine, and everything on it: what a new domain and policy start with.
LOCAL = "local"
EVERYTHING_LOCAL: Mapping[str, Sequence[str]] = {LOCAL: list(PERMISSIONS)}


def granted_on(host: str, maps: Sequence[Mapping[str, Sequence[str]]]) -> frozenset[str]:
    """Return what may be done on a host: whatever one of the maps grants."""
    return frozenset(name for found in maps for name in found.get(host, ()))


def beyond(
    wanted: Mapping[str, Sequence[str]], *have: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the permissions by host of ``wanted`` that none of the other maps grants."""
    found = {
        host: [name for name in permissions if name not in granted_on(host, have)]
        for host, permissions in wanted.items()
    }
    return {host: permissions for host, permissions in found.items() if permissions}


def check_hosts(hosts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return a map of storage host to permissions in canonical order, each once.

    Raises
    ------
    InvalidRequest
        If it names a permission that does not exist.
    """
    for host, permissions in hosts.items():
        unknown = sorted(set(permissions) - set(PERMISSIONS))
        if unknown or not host or len(host) > 64:
            raise InvalidRequest(
                f"{shown(', '.join(unknown) or repr(host))} is no permission of a storage host; "
                f"there are {', '.join(PERMISSIONS)}",
                field="allowed_vfolder_hosts",
            )
    return {
        host: [name for name in PERMISSIONS if name in permissions]
        for host, permissions in hosts.items()
    }
