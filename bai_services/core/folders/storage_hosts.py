"""Permissions on storage hosts, as granted by domains, projects and policies."""

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

# The storage host of this machine with all permissions: the default of a new domain and policy.
LOCAL = "local"
EVERYTHING_LOCAL: Mapping[str, Sequence[str]] = {LOCAL: list(PERMISSIONS)}


def granted_on(host: str, maps: Sequence[Mapping[str, Sequence[str]]]) -> frozenset[str]:
    """Return the permissions on a host: the union over the maps."""
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
    """Return a map of storage host to permissions in canonical order, without duplicates.

    Raises
    ------
    InvalidRequest
        If it names a permission that does not exist.
    """
    for host, permissions in hosts.items():
        unknown = sorted(set(permissions) - set(PERMISSIONS))
        if unknown or not host or len(host) > 64:
            raise InvalidRequest(
                f"{shown(', '.join(unknown) or repr(host))} is not a permission of a storage host; "
                f"valid are {', '.join(PERMISSIONS)}",
                field="allowed_vfolder_hosts",
            )
    return {
        host: [name for name in PERMISSIONS if name in permissions]
        for host, permissions in hosts.items()
    }
