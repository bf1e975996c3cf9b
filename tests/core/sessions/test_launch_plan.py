"""Launch plans and injections: JSON round trip and validation."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from bai_services.api.sessions import launch
from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.launch_plan import Injection, LaunchPlan, Mount

INJECTION = Injection(
    environ={"A": "1"},
    defaults={"B": "2"},
    device_nodes=("/dev/a",),
    device_requests=({"driver": "nvidia"},),
    mounts=(Mount("/a", "/home/work", read_only=False, is_own=True),),
    network="net",
    capabilities=("IPC_LOCK",),
    groups=("44",),
    layer_limit_bytes=2**30,
    memlock=True,
    notices=("simulated",),
    enforcement={"cuda": "none"},
    devices=({"id": "d1"},),
)


def plan(**changes: Any) -> LaunchPlan:
    fields: dict[str, Any] = {
        "session_id": str(uuid.UUID(int=1)),
        "kernel_id": str(uuid.UUID(int=2)),
        "agent_id": "a1",
        "name": "lab1",
        "user": "user",
        "server": "lab1-1",
        "engine": "docker",
        "endpoint": "tcp://a1",
        "image": "python",
        "command": ("python", "-V"),
        "uid": 1000,
        "gid": 1000,
        "hostname": "main1",
        "slots": {"cpu": 1000},
        "shared_memory_bytes": 1,
        "mounts": (Mount("/f", "/home/work/f", read_only=True, subpath="sub"),),
        "environ": {"C": "3"},
        "injection": INJECTION,
        "labels": {"bai.x": "y"},
        "is_superadmin": True,
    }
    return LaunchPlan(**fields | changes)


def round_trip(one: LaunchPlan) -> LaunchPlan:
    return LaunchPlan.from_json(json.loads(json.dumps(one.to_json())))


def test_plan_survives_json_round_trip() -> None:
    assert round_trip(plan()) == plan()


def test_cluster_plan_survives_json_round_trip() -> None:
    key = {"private": "p", "public": "q"}
    subs = (plan(hostname="sub1", cluster_key=key), plan(hostname="sub2", cluster_key=key))
    made = plan(cluster_key=key, subs=subs)
    assert round_trip(made) == made
    assert all("subs" not in sub for sub in made.to_json()["subs"])


def test_missing_command_and_key_are_null() -> None:
    data = plan(command=()).to_json()
    assert (data["command"], data["cluster_key"]) == (None, None)
    assert round_trip(plan(command=())) == plan(command=())


def test_rest_model_has_the_same_fields_as_the_plan() -> None:
    assert set(launch.LaunchPlan.model_fields) == set(plan().to_json())


@pytest.mark.parametrize("path", ["data", "/home/../etc", "/a\0b"])
def test_path_that_is_relative_or_not_normalized_is_rejected(path: str) -> None:
    data = {**plan().to_json(), "mounts": [{"source": path, "target": "/x"}]}
    with pytest.raises(InvalidRequest, match="not an absolute path"):
        LaunchPlan.from_json(data)


def test_id_that_is_not_a_uuid_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="cannot be parsed"):
        LaunchPlan.from_json({**plan().to_json(), "kernel_id": "../x"})
