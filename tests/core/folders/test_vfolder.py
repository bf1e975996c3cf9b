"""Names, permissions and lifecycle of folders."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.accounts.roles import Caller, Owner, Role, Target
from bai_services.core.errors import InvalidRequest, InvalidTransition
from bai_services.core.folders.vfolders import (
    TRANSITIONS,
    Permission,
    VfolderEvent,
    VfolderStatus,
    check_name,
    effective_permission,
    manages,
    next_status,
    valid_statuses,
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a", id="one letter"),
        pytest.param("Data_2-x.tar", id="each kind of valid character"),
        pytest.param("9", id="a leading digit"),
        pytest.param(".local", id="a leading dot"),
        pytest.param("x" * 64, id="maximum length"),
        pytest.param(".basHrc", id="similar to a reserved name"),
        pytest.param("a..b", id="dots inside the name"),
    ],
)
def test_valid_folder_name_is_unchanged(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name, reason",
    [
        pytest.param("", "1 to 64", id="empty"),
        pytest.param("x" * 65, "1 to 64", id="one character too long"),
        pytest.param("_a", "begin with", id="a leading underscore"),
        pytest.param("-a", "begin with", id="a leading hyphen"),
        pytest.param("a b", "letters of", id="space"),
        pytest.param("a/b", "letters of", id="slash"),
        pytest.param("..", "letters of", id="only dots"),
        pytest.param(".", "letters of", id="one dot"),
        pytest.param("a\n", "letters of", id="line break"),
        pytest.param("a\0", "letters of", id="NUL"),
        pytest.param("데이터", "letters of", id="not ASCII"),
        pytest.param("٣", "letters of", id="a digit that is not ASCII"),
        pytest.param(".ssh", "hide a file", id="reserved name"),
        pytest.param(".jupyter", "hide a file", id="name reserved by Jupyter"),
        pytest.param(".tmux.conf", "hide a file", id="reserved name with two dots"),
        pytest.param(".bashrc", "hide a file", id="reserved pattern rc"),
        pytest.param(".bash_profile", "hide a file", id="reserved pattern profile"),
    ],
)
def test_invalid_folder_name_is_rejected_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        check_name(name)
    assert refused.value.details == {"field": "name"}


@given(st.text(max_size=80))
def test_valid_name_is_safe_as_a_path_component(name: str) -> None:
    try:
        check_name(name)
    except InvalidRequest:
        return
    assert re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9._-]{0,63}", name)
    assert name.strip(".")


@given(st.sampled_from(Permission), st.sampled_from(Permission))
def test_effective_permission_is_the_lower_one(granted: Permission, asked: Permission) -> None:
    result = effective_permission(granted, asked)
    assert result in (granted, asked)
    assert granted.allows(result) and asked.allows(result)
    assert effective_permission(granted, None) is granted


def test_permissions_are_ordered() -> None:
    assert [p.is_writable for p in Permission] == [False, True, True]
    assert Permission.WD.allows(Permission.RW) and Permission.RW.allows(Permission.RO)
    assert not Permission.RO.allows(Permission.RW)


@pytest.mark.parametrize(
    ("role", "relation", "expected"),
    [
        pytest.param(Role.USER, "own", True, id="owners manage their folders"),
        pytest.param(Role.MONITOR, "own", True, id="monitors manage their own folders"),
        pytest.param(Role.USER, "domain", False, id="users do not manage folders of others"),
        pytest.param(Role.USER, "project", False, id="members do not manage project folders"),
        pytest.param(Role.ADMIN, "domain", True, id="domain admins manage folders of the domain"),
        pytest.param(
            Role.ADMIN, "project", True, id="domain admins manage project folders of the domain"
        ),
        pytest.param(
            Role.ADMIN,
            "other domain",
            False,
            id="domain admins do not manage folders of other domains",
        ),
        pytest.param(
            Role.ADMIN, "superadmin", False, id="domain admins do not manage folders of superadmins"
        ),
        pytest.param(Role.MONITOR, "domain", False, id="monitors do not manage folders of others"),
        pytest.param(Role.SUPERADMIN, "other domain", True, id="superadmins manage all folders"),
        pytest.param(Role.SESSION, "own", False, id="sessions manage no folders"),
    ],
)
def test_role_and_relation_decide_who_manages_a_folder(
    role: Role, relation: str, *, expected: bool
) -> None:
    caller = Caller(role, user_id="me", domain="d", projects=frozenset({"p"}))
    other = Owner("other", Role.USER)
    targets = {
        "own": Target(domain="d", owner=Owner("me", role)),
        "domain": Target(domain="d", owner=other),
        "project": Target(domain="d", project_id="p"),
        "other domain": Target(domain="e", owner=other),
        "superadmin": Target(domain="d", owner=Owner("other", Role.SUPERADMIN)),
    }
    assert manages(caller, targets[relation]) is expected


def test_every_folder_can_be_deleted_permanently() -> None:
    def reachable(start: VfolderStatus) -> set[VfolderStatus]:
        found, waiting = {start}, [start]
        while waiting:
            here = waiting.pop()
            for (status, _), after in TRANSITIONS.items():
                if status is here and after not in found:
                    found.add(after)
                    waiting.append(after)
        return found

    end = VfolderStatus.DELETE_COMPLETE
    assert reachable(end) == {end}
    assert all(end in reachable(status) for status in VfolderStatus)
    # After the deletion of the files has started, no transition leads back to a usable folder.
    assert VfolderStatus.READY not in reachable(VfolderStatus.DELETE_ONGOING)


def test_invalid_transition_error_contains_a_remedy() -> None:
    with pytest.raises(InvalidTransition, match="in the trash; restore it first"):
        next_status(VfolderStatus.DELETE_PENDING, VfolderEvent.TRASHED)
    assert valid_statuses(VfolderEvent.PURGED) == {
        VfolderStatus.DELETE_PENDING,
        VfolderStatus.DELETE_ERROR,
    }
