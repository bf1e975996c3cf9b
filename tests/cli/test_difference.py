"""The changes that `bai apply` computes."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.cli.admin import difference
from bai_services.cli.admin.declaration import Item
from bai_services.cli.admin.difference import Change
from bai_services.cli.admin.entities import DOMAIN, PRESET, PROJECT, RESOURCE_GROUP, USER, Entity

DOMAIN_ROW = {
    "name": "lab",
    "description": "",
    "is_active": True,
    "total_resource_slots": {"cpu": "4", "mem": "1g"},
    "max_concurrent_sessions": 5,
    "allowed_vfolder_hosts": {"local": ["mount-in-session", "upload-file"]},
}


def item(entity: Entity, key: str, scope: str = "", **values: Any) -> Item:
    return Item(key, scope, values, {}, "hub.yaml:1")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"is_active": True, "max_concurrent_sessions": 5},
        {"total_resource_slots": {"mem": "1024m", "cpu": "4.0"}},
        {"allowed_vfolder_hosts": {"local": ["upload-file", "mount-in-session"]}},
    ],
    ids=["no fields", "equal values", "other notation of amounts", "other order of permissions"],
)
def test_equivalent_values_cause_no_change(values: dict[str, Any]) -> None:
    assert difference.section_changes(DOMAIN, [item(DOMAIN, "lab", **values)], [DOMAIN_ROW]) == []


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({"max_concurrent_sessions": None}, {"max_concurrent_sessions": (5, None)}),
        (
            {"total_resource_slots": {"cpu": "4", "mem": "1g", "cuda.shares": "0"}},
            {
                "total_resource_slots": (
                    {"cpu": "4", "mem": "1g"},
                    {"cpu": "4", "mem": "1g", "cuda.shares": "0"},
                )
            },
        ),
    ],
    ids=["limit removed", "cap of 0 differs from no cap"],
)
def test_update_contains_only_changed_fields(
    values: dict[str, Any], fields: dict[str, Any]
) -> None:
    (change,) = difference.section_changes(DOMAIN, [item(DOMAIN, "lab", **values)], [DOMAIN_ROW])
    assert (change.action, change.method, change.path) == ("update", "PATCH", "/domains/lab")
    assert change.fields == fields
    assert change.body == {name: after for name, (_, after) in fields.items()}


def test_missing_object_is_created() -> None:
    declared = item(USER, "ann", email="ann@example.org", domain="lab")
    assert difference.section_changes(USER, [declared], []) == [
        Change(
            "create",
            "user",
            "ann",
            "POST",
            "/users",
            {"email": (None, "ann@example.org"), "domain": (None, "lab")},
            {"username": "ann", "email": "ann@example.org", "domain": "lab"},
        )
    ]


def test_project_in_another_domain_is_not_a_match() -> None:
    row = {"id": "p1", "name": "vision", "domain": "acme", "description": ""}
    (change,) = difference.section_changes(
        PROJECT, [item(PROJECT, "vision", "lab", domain="lab")], [row]
    )
    assert (change.action, change.name) == ("create", "lab/vision")


def test_immutable_field_is_ignored() -> None:
    row = {"id": "p1", "name": "vision", "domain": "lab", "type": "general"}
    declared = item(PROJECT, "vision", "lab", domain="lab", type="model-store")
    assert difference.section_changes(PROJECT, [declared], [row]) == []


def test_zero_amount_in_preset_equals_no_amount() -> None:
    row = {"id": "1", "name": "small", "resource_group": "", "resource_slots": {"cpu": "1"}}
    declared = item(PRESET, "small", resource_slots={"cpu": "1", "cuda.shares": "0"})
    assert difference.section_changes(PRESET, [declared], [row]) == []


def test_unlimited_equals_minus_one() -> None:
    row = {"name": "lab", "total_resource_slots": {"cpu": "unlimited", "mem": "0"}}
    declared = item(DOMAIN, "lab", total_resource_slots={"cpu": "-1", "mem": "0g"})
    assert difference.section_changes(DOMAIN, [declared], [row]) == []


def test_declared_deleted_user_is_reactivated() -> None:
    row = {"id": "u1", "username": "ann", "status": "deleted", "email": "ann@example.org"}
    (change,) = difference.section_changes(
        USER, [item(USER, "ann", email="ann@example.org")], [row]
    )
    assert (change.path, change.body) == ("/users/u1", {"status": "active"})


def test_undeclared_active_users_are_deleted() -> None:
    rows = [
        {"id": f"u{n}", "username": name, "status": status}
        for n, (name, status) in enumerate(
            [("ann", "active"), ("bob", "active"), ("me", "active"), ("old", "deleted")]
        )
    ]
    changes = difference.deletions(USER, [item(USER, "ann")], rows, {"me"})
    assert changes == [Change("delete", "user", "bob", "DELETE", "/users/u1")]


@pytest.mark.parametrize(
    ("prunes", "expected"),
    [
        (False, [("create", "PUT", "/projects/p1/members/bob")]),
        (
            True,
            [
                ("create", "PUT", "/projects/p1/members/bob"),
                ("delete", "DELETE", "/projects/p1/members/eve"),
            ],
        ),
    ],
)
def test_members_are_always_added_but_removed_only_with_prune(
    prunes: bool, expected: list[Any]
) -> None:
    declared = Item("vision", "lab", {}, {"members": ["ann", "bob"]}, "hub.yaml:1")
    changes = difference.member_changes(declared, "p1", ["ann", "eve"], prunes=prunes)
    assert [(c.action, c.method, c.path) for c in changes] == expected


def test_links_are_added_and_removed_with_prune() -> None:
    extras = {"links": {"domain": ["lab"], "project": ["a/b"]}}
    declared = Item("gpu", "", {}, extras, "hub.yaml:1")
    changes = difference.link_changes(declared, ["domain/lab", "user/eve"], prunes=True)
    assert [(c.action, c.path) for c in changes] == [
        ("create", f"{RESOURCE_GROUP.path}/gpu/links/project/a%2Fb"),
        ("delete", f"{RESOURCE_GROUP.path}/gpu/links/user/eve"),
    ]


def test_aliases_are_always_created_or_moved_but_deleted_only_with_prune() -> None:
    declared = Item("session:2", "", {}, {"aliases": ["lab", "new"]}, "hub.yaml:1")
    current = {"lab": "session:1", "old": "session:2", "other": "session:1"}
    changes = difference.alias_changes(declared, current, prunes=True)
    assert [(c.action, c.method, c.path, c.body) for c in changes] == [
        ("update", "PATCH", "/image-aliases/lab", {"image": "session:2"}),
        ("create", "POST", "/image-aliases", {"image": "session:2", "alias": "new"}),
        ("delete", "DELETE", "/image-aliases/old", None),
    ]
    assert [c.action for c in difference.alias_changes(declared, current, prunes=False)] == [
        "update",
        "create",
    ]
