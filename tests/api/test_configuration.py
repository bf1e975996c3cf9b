"""`/configuration`: settings, their origin, and values that are set in the database."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.operations.configuration import DEFINITIONS, ChangeableSetting
from bai_services.db.tables.operations import setting_overrides
from bai_services.environment import read_settings
from bai_services.manager.operations.configuration import with_overrides
from tests.testbed.manager import Api, manager_on

NAME = "BAI_TRASH_DAYS"


async def state(api: Api, name: str = NAME) -> dict[str, Any]:
    (found,) = (await (await api.client("monitor")).get("/configuration", name=name))["items"]
    return dict(found)


async def test_value_in_the_database_is_in_force_after_a_restart(api: Api, tmp_path: Path) -> None:
    admin = await api.client("admin")
    before = await state(api)
    assert (before["value"], before["origin"], before["stored"]) == ("30", "default", None)
    changed = await admin.put(f"/configuration/{NAME}", {"value": "014"})
    assert (changed["value"], changed["stored"], changed["needs_restart"]) == ("30", "14", True)
    await admin.put(f"/configuration/{NAME}", {"value": "7"})
    manager = api.world.manager
    settings = await with_overrides(manager.settings, manager.database)
    assert (settings.trash_days, settings.audit_days) == (7, 730)
    assert "hub-secret" not in repr(settings)
    entries = (await admin.get("/audit-log", action="configuration.update"))["items"]
    assert [entry["details"]["changes"]["value"] for entry in entries] == [
        {"before": "14", "after": "7"},
        {"before": None, "after": "14"},
    ]
    others = {"overridden": settings.overridden, "trash_days": 7}
    url = manager.database.url.render_as_string(hide_password=False)
    async with manager_on(url, tmp_path, api.world.clock, is_migrated=True, **others) as restarted:
        caller = await api.world.caller("admin")
        configuration = restarted.operations.configuration
        after = await configuration.set(caller, NAME, "7")
        assert (after.value, after.origin, after.needs_restart) == ("7", "database", False)
        await configuration.unset(caller, NAME)
        await configuration.unset(caller, NAME)
        assert len((await admin.get("/audit-log", action="configuration.update"))["items"]) == 4


@pytest.mark.both_databases
async def test_concurrent_changes_of_a_setting_succeed(api: Api) -> None:
    admin = await api.client("admin")
    values = [str(number) for number in range(1, 9)]
    await asyncio.gather(
        *(admin.put(f"/configuration/{NAME}", {"value": value}) for value in values)
    )
    assert (await state(api))["stored"] in values


@pytest.mark.parametrize("value", ["", "-1", "1.5", "ten", "36501", "9" * 20, "1" * 33])
async def test_invalid_value_is_rejected(api: Api, value: str) -> None:
    with pytest.raises(InvalidRequest):
        await (await api.client("admin")).put(f"/configuration/{NAME}", {"value": value})


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if name.endswith("_DAYS")])
async def test_number_of_days_is_limited_to_100_years(api: Api, name: str) -> None:
    """A larger number would make dates overflow: the manager or sign-ins would fail."""
    definition = DEFINITIONS[name]
    assert isinstance(definition, ChangeableSetting)
    with pytest.raises(InvalidRequest):
        definition.parse(str(2**62))
    now = api.world.clock()
    assert now - timedelta(days=int(definition.parse("36500"))) < now
    await (await api.client("admin")).put(f"/configuration/{name}", {"value": "9"})


async def test_only_safe_settings_can_be_set(api: Api) -> None:
    admin = await api.client("admin")
    with pytest.raises(NotFound):
        await admin.put("/configuration/PATH", {"value": "1"})
    for name in ("BAI_DATABASE_URL", "BAI_KEY_FILE", "BAI_ONE_TIME_CODES", "BAI_TRUSTED_PROXIES"):
        with pytest.raises(Forbidden):
            await admin.put(f"/configuration/{name}", {"value": "1"})
    with pytest.raises(InvalidRequest):
        await admin.put("/configuration/BAI_SHOW_AGENTS", {"value": "2"})


async def test_invalid_value_in_the_database_does_not_prevent_a_start(api: Api) -> None:
    manager = api.world.manager
    rows = [("BAI_TRASH_DAYS", "many"), ("BAI_KEY_FILE", "/etc/passwd"), ("BAI_X", "1")]
    async with manager.database.write() as tx:
        for name, value in rows:
            row = {"variable": name, "value": value, "changed_by": "x"}
            await tx.execute(
                sa.insert(setting_overrides).values(changed_at=api.world.clock(), **row)
            )
    assert (await with_overrides(manager.settings, manager.database)).overridden == frozenset()


def test_environment_is_listed_without_secrets(tmp_path: Path) -> None:
    key = tmp_path / "key-file"
    key.write_text("x" * 43 + "=")
    environ = {
        "BAI_HOME": str(tmp_path),
        "BAI_AUDIT_DAYS": "9",
        "BAI_KEY_FILE": str(key),
        "BAI_DATABASE_URL": "postgresql+psycopg://u:secret@host/db",
    }
    settings = read_settings(environ)
    assert settings.audit_days == 9
    assert settings.configured == {
        "BAI_HOME": str(tmp_path),
        "BAI_AUDIT_DAYS": "9",
        "BAI_KEY_FILE": "",
        "BAI_DATABASE_URL": "",
    }
    assert settings.configured.keys() <= DEFINITIONS.keys()
    with pytest.raises(SystemExit, match="BAI_AUDIT_DAYS must be a whole number from 0 to 36500"):
        read_settings({**environ, "BAI_AUDIT_DAYS": "x"})
