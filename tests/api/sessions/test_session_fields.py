"""Fields of `SessionSpec` in the REST model, templates, the database and the launch plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.api.sessions.bodies import NewSession, SessionRequest
from bai_services.client import Client
from bai_services.core import errors
from bai_services.core.sessions.resolved_spec import ResolvedSpec
from bai_services.core.sessions.spec import (
    DEFAULTS,
    FIELDS,
    STORED_OPTIONS,
    SessionSpec,
    default_of,
    traits_of,
)
from bai_services.db.tables.sessions import sessions
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.session_fields import (
    FIELD_EXAMPLES,
    FIRST,
    NAME,
    create_dependency,
    prepare_admin,
    request_of,
)

HUB_FIELDS = {"owner", "hub_server"}
# Columns that are computed from several fields of the request, or from none.
COMMON_COLUMNS = {"id", "options", "request_hash", "notices"}

# For fields that the launch plan contains: a function that reads the value from a plan, and the
# expected value. Fields with a ``variable`` trait are tested as environment variables instead.
IN_PLAN: Mapping[str, tuple[Callable[[Mapping[str, Any]], object], object]] = {
    "image": (lambda plan: plan["image"], "local/session:latest"),
    "resources": (lambda plan: plan["slots"]["cpu"], 2000),
    "preset": (lambda plan: plan["slots"]["mem"], 4 * 2**30),
    "shared_memory": (lambda plan: plan["shared_memory_bytes"], 128 * 2**20),
    "mounts": (lambda plan: [m["target"] for m in plan["mounts"]], ["/home/work/data"]),
    "environ": (lambda plan: plan["environ"]["SEED"], "1"),
    "secret_environ": (lambda plan: plan["environ"]["TOKEN"], "swordfish"),
    "type": (lambda plan: plan["command"][-1], "bai_labext.batch"),
    "cluster_size": (lambda plan: len(plan["subs"]), 1),
    "preopen_ports": (lambda plan: plan["environ"]["BAI_PREOPEN_PORTS"], "9000"),
    "owner": (lambda plan: plan["user"], "admin"),
    "hub_server": (lambda plan: plan["server"].startswith(NAME), True),
}
# Fields that only the manager uses: for scheduling, time limits, callbacks and reuse.
MANAGER_FIELDS = {
    "starts_at", "batch_timeout", "dependencies", "cluster_mode", "agent_list", "agent_selection",
    "allow_fractional_resource_fragmentation", "callback_url", "priority", "reuse",
    "minimum_resources", "reservation",
    "job_priority", "is_preemptible",
}  # fmt: skip


@pytest.fixture
async def admin(api: Api) -> Client:
    return await prepare_admin(api)


def test_every_field_except_hub_fields_has_an_example_that_is_not_the_default() -> None:
    assert set(FIELD_EXAMPLES) | HUB_FIELDS == FIELDS
    for spec_field in fields(SessionSpec):
        example = FIELD_EXAMPLES.get(spec_field.name)
        assert example is None or example.value != default_of(spec_field), spec_field.name


def test_rest_model_has_the_same_fields_and_defaults_as_the_spec() -> None:
    only_rest = {"template", "enqueue_only", "max_wait_seconds"}
    assert set(NewSession.model_fields) - only_rest == FIELDS
    assert set(SessionRequest.model_fields) | HUB_FIELDS == FIELDS
    assert NewSession().to_spec() == SessionSpec(**DEFAULTS)


def test_the_columns_of_a_session_are_those_of_the_spec() -> None:
    resolved = {f.name for f in fields(ResolvedSpec)}
    assert resolved <= set(sessions.c.keys())
    named = {name for f in fields(SessionSpec) for name in traits_of(f).columns or ()}
    assert named | COMMON_COLUMNS == resolved | {"cluster_size"}


async def test_fields_are_stored_and_can_come_from_a_template(
    api: Api, agent: FakeAgent, admin: Client
) -> None:
    # Stop the loops, so that the sessions remain pending and the callback URL is not called.
    await api.world.manager.stop_session_loops()
    await create_dependency(admin)
    await admin.post("/sessions", {"name": "plain", "project": "default"})
    full = await admin.post("/sessions", request_of())
    async with api.world.manager.database.read() as tx:
        found = await tx.execute(sa.select(sessions).where(sessions.c.name.in_([NAME, "plain"])))
        rows = {row["name"]: row for row in found.mappings()}
    for spec_field in fields(SessionSpec):
        name, columns = spec_field.name, traits_of(spec_field).columns
        if name in STORED_OPTIONS:
            assert rows[NAME]["options"][name] == FIELD_EXAMPLES[name].value
        elif columns and name not in HUB_FIELDS | {"image", "resource_group"}:
            # Image and resource group are equal, because only one of each exists.
            assert rows[NAME][columns[0]] != rows["plain"][columns[0]], name
    graph = await admin.get(f"/sessions/{NAME}/dependency-graph")
    assert {item["name"] for item in graph["items"]} == {FIRST, NAME}

    # A template cannot contain secrets, so the request adds them. Without ``reuse``, a request with
    # the name of a live session succeeds only if all other fields are equal. In
    # this case, it returns the existing session.
    own = ("name", "secret_environ", "environ", "reuse")
    template = {"name": "all", "request": request_of(without=own)}
    await admin.post("/session-templates", template)
    request = {name: FIELD_EXAMPLES[name].value for name in own if name != "reuse"}
    again = await admin.post("/sessions", {**request, "template": "all"})
    assert again["id"] == full["id"]
    with pytest.raises(errors.AlreadyExists):
        await admin.post("/sessions", {**request, "template": "all", "priority": 1})


async def test_launch_plan_contains_all_fields_except_manager_fields(
    api: Api, agent: FakeAgent, admin: Client
) -> None:
    with_variable = {f.name for f in fields(SessionSpec) if traits_of(f).variable}
    assert with_variable | set(IN_PLAN) | MANAGER_FIELDS == FIELDS
    without = ("starts_at", "dependencies", "callback_url")
    session = await admin.post("/sessions", request_of(without=without))
    key = f"/sessions/{session['id']}"
    # The first placement of a test run may JIT-compile the placement code.
    await admin.get(key, wait="SCHEDULED", timeout="60", timeout_seconds=70)
    for item in await agent.work(5):
        await agent.report(item, injection={})
    await admin.get(key, wait="PREPARED", timeout="60", timeout_seconds=70)
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    plan = await api.hub.post(f"{key}/launch", where)
    for name, (read, expected) in IN_PLAN.items():
        assert read(plan) == expected, name
    for spec_field in fields(SessionSpec):
        if variable := traits_of(spec_field).variable:
            assert plan["environ"][variable] == str(FIELD_EXAMPLES[spec_field.name].value)
