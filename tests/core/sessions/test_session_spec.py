"""`SessionSpec`: conversion from a REST body, digest, groups of fields, and stored options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from bai_services.api.sessions.bodies import SessionRequest
from bai_services.core.folders.mounts import MountRequest, ResolvedMount
from bai_services.core.folders.vfolders import Permission
from bai_services.core.sessions.spec import (
    HUB_OPTIONS,
    MERGED_FIELDS,
    PRIVATE_FIELDS,
    SessionSpec,
    traits_of,
)

# Changes of the fields that the digest covers. ``project`` and ``mounts`` are missing, because
# ``digest`` takes their resolved values as arguments.
CONTENT: Sequence[dict[str, Any]] = (
    {"image": "other"},
    {"type": "batch"},
    {"resource_group": "other"},
    {"preset": "large"},
    {"resources": {"cpu": "2"}},
    {"shared_memory": "1g"},
    {"environ": {"A": "1"}},
    {"secret_environ": ("A",)},
    {"priority": 1},
    {"startup_command": "true"},
    {"starts_at": "10min"},
    {"batch_timeout": 90},
    {"callback_url": "https://example.org"},
    {"dependencies": ("a",)},
    {"preopen_ports": (9000,)},
    {"cluster_size": 2},
    {"cluster_size": 2, "cluster_mode": "multi-node"},
    {"agent_list": ("a1",)},
    {"agent_list": ("a1",), "agent_selection": "preferred"},
    {"allow_fractional_resource_fragmentation": False},
)
# Fields that were added later; stored digests do not cover them.
LATER_CONTENT: Sequence[dict[str, Any]] = (
    {"minimum_resources": {"cpu": "1"}},
    {"reservation": "course"},
    {"job_priority": 5},
    {"is_preemptible": False},
)

MOUNTS = (ResolvedMount("id", "data", "local", "/home/work/data", Permission.RO, subpath="x"),)


BODY: dict[str, Any] = {
    "name": "lab1",
    "project": "default",
    "image": "python:3.12",
    "type": "batch",
    "resource_group": "gpu",
    "preset": "small",
    "resources": {"cpu": 1, "mem": "1g"},
    "shared_memory": "64m",
    "mounts": [{"vfolder": "data", "subpath": "raw"}],
    "environ": {"A": "1"},
    "secret_environ": ["A"],
    "priority": 20,
    "startup_command": "true",
    "starts_at": "1h",
    "batch_timeout": 60,
    "callback_url": "https://example.org",
    "dependencies": ["a", "b"],
    "preopen_ports": [8501],
    "reuse": True,
    "cluster_size": 3,
    "cluster_mode": "multi-node",
    "agent_list": ["a1"],
    "agent_selection": "preferred",
    "allow_fractional_resource_fragmentation": True,
    "minimum_resources": {"cpu": 1},
    "reservation": "course",
    "job_priority": 5,
    "is_preemptible": False,
}


def test_every_field_of_a_body_reaches_the_spec() -> None:
    assert BODY.keys() == SessionRequest.model_fields.keys()
    expected = {name: tuple(v) if isinstance(v, list) else v for name, v in BODY.items()} | {
        "resources": {"cpu": "1", "mem": "1g"},
        "minimum_resources": {"cpu": "1"},
        "mounts": (MountRequest("data", subpath="raw"),),
    }
    assert SessionRequest.model_validate(BODY).to_spec() == SessionSpec(**expected)


def test_digests_of_stored_requests_do_not_change() -> None:
    """Digests are stored. If they changed, an identical later request would be a conflict."""
    full = SessionSpec(**{name: value for changes in CONTENT for name, value in changes.items()})
    assert SessionSpec().digest("p", ()).startswith("822432af471c5475")
    assert full.digest("p", MOUNTS).startswith("c3fc0186f76ae99b")
    smaller = replace(full, preset=None, resource_group=None)
    assert smaller.digest("p", MOUNTS).startswith("31484f1266eb6410")


def test_every_identity_field_changes_the_digest() -> None:
    identity_fields = {f.name for f in fields(SessionSpec) if traits_of(f).is_identity}
    content = (*CONTENT, *LATER_CONTENT)
    changed_fields = {name for changes in content for name in changes}
    assert changed_fields == identity_fields - {"project", "mounts"}
    digests = [SessionSpec(**changes).digest("p", ()) for changes in ({}, *content)]
    digests += [SessionSpec().digest("other", ()), SessionSpec().digest("p", MOUNTS)]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"name": "lab1"}, id="name"),
        pytest.param({"reuse": True}, id="reuse"),
        pytest.param({"owner": "user", "hub_server": "lab"}, id="fields set by the Hub"),
        pytest.param({"agent_selection": "preferred"}, id="agent selection without agents"),
        pytest.param(
            {"cluster_mode": "multi-node"}, id="cluster mode of a session with one kernel"
        ),
    ],
)
def test_digest_ignores_fields_outside_the_identity_and_options_without_effect(
    changes: dict[str, Any],
) -> None:
    assert replace(SessionSpec(), **changes).digest("p", ()) == SessionSpec().digest("p", ())


def test_equivalent_requests_have_the_same_digest() -> None:
    one = SessionSpec(resources={"mem": "1g"}, dependencies=("a", "b", "a"))
    other = SessionSpec(resources={"mem": "1024m"}, dependencies=("b", "a"))
    assert one.digest("p", ()) == other.digest("p", ())


def test_field_groups_contain_the_expected_fields() -> None:
    assert {"environ", "startup_command", "callback_url"} == PRIVATE_FIELDS
    assert {"environ", "resources", "minimum_resources"} == MERGED_FIELDS
    assert not {"owner", "hub_server", "agent_list", "reuse", "type"} & HUB_OPTIONS


@dataclass(frozen=True, slots=True)
class Extended(SessionSpec):
    """A spec with an additional field."""

    flavour: str | None = None


def test_new_field_is_stored_and_digested_without_further_code() -> None:
    assert Extended().digest("p", ()) == SessionSpec().digest("p", ())
    assert Extended(flavour="sweet").digest("p", ()) != Extended(flavour="sour").digest("p", ())
    assert Extended(flavour="sweet").options() == {"flavour": "sweet"}
    assert Extended().options() == {}
