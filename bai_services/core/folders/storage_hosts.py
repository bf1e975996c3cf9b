"""Permissions on storage hosts. Domains, projects and keypair policies grant them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import InvalidRequest
from ..user_input import shown

MAX_HOST_NAME = 64
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

# Name of the storage host on the manager's machine.
LOCAL = "local"
# Default of a new domain or keypair policy.
ALL_LOCAL_PERMISSIONS: Mapping[str, Sequence[str]] = {LOCAL: list(PERMISSIONS)}


def granted_on(host: str, maps: Sequence[Mapping[str, Sequence[str]]]) -> frozenset[str]:
    """Return the union of the permissions that ``maps`` grant on a host."""
    return frozenset(name for permissions in maps for name in permissions.get(host, ()))


def missing_permissions(
    required: Mapping[str, Sequence[str]], *granted: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the ``required`` permissions that no map in ``granted`` contains, by host."""
    missing = {
        host: [name for name in permissions if name not in granted_on(host, granted)]
        for host, permissions in required.items()
    }
    return {host: permissions for host, permissions in missing.items() if permissions}


def check_hosts(hosts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the permissions by storage host in canonical order, without duplicates.

    Raises
    ------
    InvalidRequest
        If a permission does not exist, or a host name is empty or longer than 64 characters.
    """
    for host, permissions in hosts.items():
        if not 1 <= len(host) <= MAX_HOST_NAME:
            raise InvalidRequest(
                f"{shown(host)!r} is not a storage host; "
                f"the name of a storage host has 1 to {MAX_HOST_NAME} characters",
                field="allowed_vfolder_hosts",
            )
        unknown = sorted(set(permissions) - set(PERMISSIONS))
        if unknown:
            raise InvalidRequest(
                f"{shown(', '.join(unknown))} is not a permission of a storage host; "
                f"the permissions are {', '.join(PERMISSIONS)}",
                field="allowed_vfolder_hosts",
            )
    return {
        host: [name for name in PERMISSIONS if name in permissions]
        for host, permissions in hosts.items()
    }
