"""Invalid fields of a session request are reported together."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent


async def test_all_invalid_fields_are_reported_together(agent: FakeAgent, user: Client) -> None:
    spec = {
        "name": "!",
        "resources": {"cpu": "many", "mem": "1g"},
        "environ": {"BAI_X": "1"},
        "preopen_ports": [80],
    }
    with pytest.raises(errors.InvalidRequest) as refused:
        await user.post("/sessions", spec)
    problems = refused.value.details["problems"]
    fields = [problem["field"] for problem in problems]
    assert fields == ["name", "resources.cpu", "environ.BAI_X", "preopen_ports"]
    assert all(problem["problem"] in refused.value.message for problem in problems)


async def test_amounts_above_the_capacity_are_reported_with_malformed_values(
    agent: FakeAgent, user: Client
) -> None:
    spec = {
        "name": "a b",
        "resources": {"cpu": "99", "mem": "1g", "cuda.shares": "many"},
        "shared_memory": "900t",
    }
    with pytest.raises(errors.BaiError) as refused:
        await user.post("/sessions", spec)
    problems = {p["field"]: p["problem"] for p in refused.value.details["problems"]}
    assert set(problems) == {"name", "resources.cpu", "resources.cuda.shares", "shared_memory"}
    assert "99" in problems["resources.cpu"]


async def test_unknown_names_are_reported_with_invalid_fields(
    agent: FakeAgent, user: Client
) -> None:
    spec = {
        "name": "!",
        "image": "nothing:0",
        "resource_group": "nowhere",
        "priority": 1000,
        "mounts": [
            {"vfolder": "nobody-s", "path": "../out"},
            {"vfolder": "gone", "subpath": "/etc"},
        ],
    }
    with pytest.raises(errors.NotFound) as refused:
        await user.post("/sessions", spec)
    problems = refused.value.details["problems"]
    assert [problem["field"] for problem in problems] == [
        "name",
        "resource_group",
        "image",
        "priority",
        "mounts.0.path",
        "mounts.0.vfolder",
        "mounts.1.subpath",
        "mounts.1.vfolder",
    ]
    assert all(problem["problem"] in refused.value.message for problem in problems)


@pytest.mark.parametrize(
    ("spec", "field", "error"),
    [
        ({"project": "nowhere"}, "project", errors.NotFound),
        ({"preset": "none-such"}, "preset", errors.NotFound),
        ({"resources": {"cpu": "0"}}, "resources.cpu", errors.InvalidRequest),
        ({"priority": -1}, "priority", errors.InvalidRequest),
        ({"resources": {"mem": "900t"}}, "resources.mem", errors.InsufficientResources),
    ],
)
async def test_error_for_a_single_invalid_field_names_the_field(
    agent: FakeAgent, user: Client, spec: dict[str, Any], field: str, error: type[errors.BaiError]
) -> None:
    with pytest.raises(error) as refused:
        await user.post("/sessions", {"name": "alone", **spec})
    expected = [{"field": field, "problem": refused.value.message}]
    assert refused.value.details["problems"] == expected


async def test_unknown_project_is_reported_with_invalid_fields(
    agent: FakeAgent, user: Client
) -> None:
    spec = {"name": "!", "project": "nowhere", "image": "nothing:0"}
    with pytest.raises(errors.NotFound) as refused:
        await user.post("/sessions", spec)
    fields = [problem["field"] for problem in refused.value.details["problems"]]
    assert fields == ["name", "project"]


async def test_denied_request_for_another_user_does_not_list_invalid_fields(
    agent: FakeAgent, user: Client
) -> None:
    with pytest.raises(errors.Forbidden) as refused:
        await user.post("/sessions", {"name": "!", "owner": "admin", "image": "nothing:0"})
    assert "problems" not in refused.value.details


@pytest.mark.parametrize(
    "spec",
    [
        {"resources": {f"slot-{number}": "1" for number in range(20_000)}},
        {f"field-{number}": 1 for number in range(40_000)},
        {"x" * 1_000_000: 1},
    ],
    ids=["many resources", "many fields", "long field name"],
)
@pytest.mark.parametrize("path", ["/sessions", "/sessions/preview"])
async def test_error_for_a_large_invalid_body_is_short(
    agent: FakeAgent, user: Client, path: str, spec: dict[str, Any]
) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        await user.post(path, {"name": "alone", **spec})
    assert len(refused.value.message) < 20_000
    assert len(refused.value.details["problems"]) <= 100
