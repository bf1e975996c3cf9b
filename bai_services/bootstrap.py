"""Create the prerequisites of the first account: policies and a domain."""

from __future__ import annotations

from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import NotFound
from bai_services.manager.manager import Manager

KEYPAIR_POLICY = {
    "name": "default",
    "default_for_unspecified": "UNLIMITED",
    "max_concurrent_sessions": 30,
}


async def ensure_prerequisites(
    manager: Manager, caller: Caller, domain: str, description: str = ""
) -> None:
    """Create the default policies and the domain unless they exist."""
    for policies, spec in (
        (manager.accounts.keypair_policies, KEYPAIR_POLICY),
        (manager.accounts.user_policies, {"name": "default"}),
        (manager.accounts.project_policies, {"name": "default"}),
    ):
        if await is_missing(policies, caller, "default"):
            await policies.create(caller, spec)
    if await is_missing(manager.accounts.domains, caller, domain):
        await manager.accounts.domains.create(caller, {"name": domain, "description": description})


async def is_missing(collection: Any, caller: Caller, key: str) -> bool:
    """Return whether a collection of the manager, such as its domains, has no object ``key``."""
    try:
        await collection.get(caller, key)
    except NotFound:
        return True
    return False
