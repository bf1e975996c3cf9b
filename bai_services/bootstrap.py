"""Create the prerequisites of a new installation: policies, a domain, a group, an image."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import NotFound
from bai_services.manager.manager import Manager

GROUP = "default"
ALIAS = "python"
PROCESS_IMAGE = "local/session:latest"

# Labels of images/session/Dockerfile; ``image_labels`` adds the apps.
_IMAGE_LABELS = {
    "ai.backend.role": "COMPUTE",
    "ai.backend.features": "batch query uid-match",
    "ai.backend.resource.min.cpu": "1",
    "ai.backend.resource.min.mem": "256m",
    "ai.backend.resource.preferred.shmem": "64m",
}
_APPS = {"jupyterlab": 8090, "notebook": 8091, "tensorboard": 6006, "vscode": 8180, "mlflow": 5000}
# Programs that some apps require.
_PROGRAMS = {"vscode": "code-server", "mlflow": "mlflow", "notebook": "jupyter-notebook"}

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


def image_labels(is_process: bool) -> dict[str, str]:
    """Return the labels of the session image.

    For the process engine (``is_process``), omit apps whose programs are not installed on this
    machine.
    """
    missing = set()
    if is_process:
        missing = {name for name, program in _PROGRAMS.items() if shutil.which(program) is None}
    ports = ",".join(f"{name}:http:{port}" for name, port in _APPS.items() if name not in missing)
    return {**_IMAGE_LABELS, "ai.backend.service-ports": ports}


async def ensure_group(manager: Manager, caller: Caller, engine: str) -> None:
    """Create the default resource group, or set its engine."""
    groups = manager.cluster.resource_groups
    if await is_missing(groups, caller, GROUP):
        await groups.create(caller, {"name": GROUP, "engine": engine, "is_default": True})
    elif (await groups.get(caller, GROUP)).engine != engine:
        await groups.update(caller, GROUP, {"engine": engine})


async def ensure_image(
    manager: Manager, caller: Caller, name: str, labels: Mapping[str, str], description: str
) -> None:
    """Register an image unless it exists; make it the target of the alias ``python``."""
    if await is_missing(manager.cluster.images, caller, name):
        spec = {"name": name, "labels": dict(labels), "description": description}
        await manager.cluster.images.create(caller, spec)
    aliases = manager.cluster.image_aliases
    if await is_missing(aliases, caller, ALIAS):
        await aliases.create(caller, {"alias": ALIAS, "image": name})
    elif (await aliases.get(caller, ALIAS)).image != name:
        await aliases.update(caller, ALIAS, {"image": name})


async def ensure_default_image(manager: Manager, caller: Caller, project: str) -> None:
    """Make the alias ``python`` the default image of a project that has none."""
    projects = manager.accounts.projects
    if (await projects.get(caller, project)).default_image is None:
        await projects.update(caller, project, {"default_image": ALIAS})
