"""Facts about the installation: versions, licenses, health, database, and numbers of objects."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import platform
from importlib import metadata
from pathlib import Path

from bai_services.core.accounts.roles import Caller
from bai_services.core.operations.system import Package, SystemInfo
from bai_services.db.database import Database
from bai_services.db.operations.system import SystemStore

from ..accounts import authorizer
from ..clock import Clock
from ..health import HealthCheck

_LICENCE_CLASSIFIER = "License :: "
# Python packages that bundle JavaScript, and the path of the license list in each.
_LICENCE_LISTS = (
    ("bai_services", "webui/dist/third-party-licenses.json"),
    ("bai_labext", "labextension/static/third-party-licenses.json"),
)
# Some packages have the whole text of the license in the field ``License``.
_MAX_LICENCE_CHARS = 100


class System:
    def __init__(self, database: Database, health: HealthCheck, clock: Clock) -> None:
        self._store = SystemStore(database)
        self._health = health
        self._clock = clock

    async def get(self, caller: Caller) -> SystemInfo:
        """Return the facts about the installation."""
        authorizer.require(caller, "system.read")
        health = await self._health.get()
        facts = await self._store.facts()
        return SystemInfo(
            version=health.version,
            python=platform.python_version(),
            at=self._clock(),
            health=health.status,
            has_database=health.database,
            has_hub=health.hub,
            is_standby=health.standby,
            database=facts.kind,
            database_version=facts.version,
            database_bytes=facts.size_bytes,
            revision=facts.revision,
            sessions=facts.sessions,
            agents=facts.agents,
            users=facts.users,
            audit_entries=facts.audit_entries,
            packages=await asyncio.to_thread(installed_packages),
            bundled=await asyncio.to_thread(bundled_packages),
        )


@functools.cache
def installed_packages() -> tuple[Package, ...]:
    """Return the installed Python packages, sorted by name. The first call reads many files."""
    found = {
        each.metadata["Name"].lower(): Package(
            each.metadata["Name"], each.version, _licence(each.metadata)
        )
        for each in metadata.distributions()
        if each.metadata["Name"]
    }
    return tuple(found[name] for name in sorted(found))


@functools.cache
def bundled_packages() -> tuple[Package, ...]:
    """Return the JavaScript packages in the built web UI and JupyterLab extension, by name.

    The frontend build writes each list; a package that was not built contributes nothing.
    """
    found: set[Package] = set()
    for package, path in _LICENCE_LISTS:
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            file = Path(folder) / path
            if file.is_file():
                for each in json.loads(file.read_text(encoding="utf-8"))["packages"]:
                    name, version = str(each["name"]), str(each["versionInfo"])
                    found.add(Package(name, version, str(each["licenseId"])))
    return tuple(sorted(found, key=lambda each: (each.name.lower(), each.version)))


def _licence(facts: metadata.PackageMetadata) -> str:
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in facts.get_all("Classifier") or ()
        if text.startswith(_LICENCE_CLASSIFIER)
    ]
    fields = [(facts.get_all(name) or [""])[0] for name in ("License-Expression", "License")]
    stated = str(fields[0] or "; ".join(classifiers) or fields[1])
    return stated.strip().partition("\n")[0][:_MAX_LICENCE_CHARS]
