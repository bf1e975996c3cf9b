"""Permissions of roles."""

from __future__ import annotations

import pytest

from bai_services.core.accounts.roles import (
    ACTIONS,
    Caller,
    Owner,
    Reach,
    Role,
    Target,
    Visibility,
    reach,
    reaches,
)
from bai_services.core.errors import Forbidden, NotFound
from bai_services.manager.accounts.authorizer import require, visibility

USER = Caller(Role.USER, user_id="u1", domain="d", projects=frozenset({"p1"}))
ADMIN = Caller(Role.ADMIN, user_id="a1", domain="d")
SUPERADMIN = Caller(Role.SUPERADMIN, user_id="s1", domain="other")
MONITOR = Caller(Role.MONITOR, user_id="m1", domain="d")
HUB = Caller(Role.HUB)
AGENT = Caller(Role.AGENT)
SESSION = Caller(Role.SESSION, user_id="u1", domain="d", projects=frozenset({"p1"}))

MINE = Target(domain="d", project_id="p1", owner=Owner("u1", Role.USER))
SAME_DOMAIN = Target(domain="d", project_id="p2", owner=Owner("u2", Role.USER))
FOREIGN = Target(domain="e", project_id="p9", owner=Owner("u9", Role.USER))


@pytest.mark.parametrize(
    "caller, action, target, allowed",
    [
        pytest.param(USER, "session.write", MINE, True, id="own session"),
        pytest.param(USER, "session.write", SAME_DOMAIN, False, id="session of another user"),
        pytest.param(USER, "project.read", MINE, True, id="project of the user"),
        pytest.param(USER, "project.read", SAME_DOMAIN, False, id="project without membership"),
        pytest.param(
            ADMIN, "session.write", SAME_DOMAIN, True, id="domain admin in the same domain"
        ),
        pytest.param(ADMIN, "session.write", FOREIGN, False, id="domain admin in another domain"),
        pytest.param(
            ADMIN,
            "session.create",
            SAME_DOMAIN,
            False,
            id="domain admin creates a session for another user",
        ),
        pytest.param(SUPERADMIN, "session.write", FOREIGN, True, id="superadmin in any domain"),
        pytest.param(MONITOR, "session.read", FOREIGN, True, id="monitor reads any session"),
        pytest.param(MONITOR, "session.write", SAME_DOMAIN, False, id="monitor changes nothing"),
        pytest.param(HUB, "session.launch", FOREIGN, True, id="Hub launches any session"),
        pytest.param(HUB, "domain.write", FOREIGN, False, id="Hub cannot change domains"),
        pytest.param(AGENT, "agent.report", Target(), True, id="agent reports"),
        pytest.param(AGENT, "session.read", MINE, False, id="agent cannot read sessions"),
        pytest.param(SESSION, "session.write", MINE, True, id="session token: own session"),
        pytest.param(
            SESSION, "session.read", SAME_DOMAIN, False, id="session token: other session"
        ),
        pytest.param(SESSION, "session.create", MINE, False, id="session token cannot create"),
        pytest.param(
            SESSION, "vfolder.write", MINE, False, id="session token cannot change folders"
        ),
        pytest.param(
            SESSION, "quota.read", MINE, True, id="session token reads the owner's quotas"
        ),
        pytest.param(SESSION, "quota.write", MINE, False, id="session token cannot change quotas"),
        pytest.param(USER, "user.read", Target(), False, id="user, target without owner"),
    ],
)
def test_role_reaches_only_permitted_targets(
    caller: Caller, action: str, target: Target, allowed: bool
) -> None:
    assert reaches(caller, action, target) is allowed


SUPERADMINS = Target(domain="d", project_id="p1", owner=Owner("s1", Role.SUPERADMIN))
ADMINS = Target(domain="d", owner=Owner("a2", Role.ADMIN))
MONITORS = Target(domain="d", owner=Owner("m2", Role.MONITOR))
MEMBER = Caller(Role.ADMIN, user_id="a1", domain="d", projects=frozenset({"p1"}))
PROJECT_FOLDER = Target(domain="d", project_id="p1")


@pytest.mark.parametrize(
    "caller, action, target, allowed",
    [
        pytest.param(
            ADMIN, "session.read", SUPERADMINS, False, id="domain admin, superadmin's session"
        ),
        pytest.param(
            MEMBER, "session.write", SUPERADMINS, False, id="project member, superadmin's session"
        ),
        pytest.param(
            ADMIN, "vfolder.write", SUPERADMINS, False, id="domain admin, superadmin's folder"
        ),
        pytest.param(
            ADMIN, "template.write", SUPERADMINS, False, id="domain admin, superadmin's template"
        ),
        pytest.param(
            ADMIN, "user.write", SUPERADMINS, False, id="domain admin changes a superadmin"
        ),
        pytest.param(
            ADMIN, "user.read", SUPERADMINS, True, id="domain admin reads a superadmin's account"
        ),
        pytest.param(ADMIN, "session.write", ADMINS, True, id="equal roles"),
        pytest.param(ADMIN, "session.write", MONITORS, True, id="domain admin, monitor's session"),
        pytest.param(ADMIN, "user.write", MONITORS, False, id="domain admin, monitor's account"),
        pytest.param(ADMIN, "keypair.write", MONITORS, False, id="domain admin, monitor's keypair"),
        pytest.param(
            MONITOR, "session.read", SUPERADMINS, True, id="monitor, superadmin's session"
        ),
        pytest.param(
            MONITOR, "session.read-private", MINE, False, id="monitor, private data of a session"
        ),
        pytest.param(
            SUPERADMIN, "session.write", SUPERADMINS, True, id="superadmin, superadmin's session"
        ),
        pytest.param(
            ADMIN, "vfolder.write", PROJECT_FOLDER, True, id="folder of a project, without owner"
        ),
        pytest.param(HUB, "session.write", SUPERADMINS, True, id="Hub stops any session"),
    ],
)
def test_permission_depends_on_the_rank_of_the_owner(
    caller: Caller, action: str, target: Target, allowed: bool
) -> None:
    assert reaches(caller, action, target) is allowed


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_domain_admin_may_not_act_on_superadmins(action: str) -> None:
    """Exceptions are reading accounts, keypairs, quotas and usage, and actions with reach ALL."""
    is_account_read = action in ("user.read", "keypair.read", "quota.read", "usage.read")
    allowed = reaches(MEMBER, action, SUPERADMINS)
    assert not allowed or is_account_read or reach(Role.ADMIN, action) is Reach.ALL


def test_a_caller_without_user_id_does_not_match_a_target_without_owner() -> None:
    assert not reaches(Caller(Role.USER), "session.read", Target())


@pytest.mark.parametrize(
    "action", sorted(a for a in ACTIONS if a.endswith((".write", ".change-own")))
)
def test_read_reaches_at_least_as_far_as_write(action: str) -> None:
    read = f"{action.partition('.')[0]}.read"
    for role in (Role.USER, Role.ADMIN, Role.MONITOR, Role.SUPERADMIN):
        assert reach(role, read) >= reach(role, action)


def test_denied_write_is_not_found_for_an_invisible_session_and_otherwise_forbidden() -> None:
    with pytest.raises(NotFound):
        require(USER, "session.write", SAME_DOMAIN)
    with pytest.raises(Forbidden, match=r"monitor.*session\.write"):
        require(MONITOR, "session.write", SAME_DOMAIN)
    require(USER, "session.write", MINE)


def test_visibility_of_lists_depends_on_role_and_action() -> None:
    assert visibility(USER, "session.read") == Visibility(owner_id="u1")
    assert visibility(ADMIN, "session.read") == Visibility(
        domain="d", hidden_roles=frozenset({Role.SUPERADMIN})
    )
    assert visibility(ADMIN, "user.read") == Visibility(domain="d")
    assert visibility(SUPERADMIN, "session.read").is_unrestricted
    assert visibility(USER, "project.read") == Visibility(project_ids=frozenset({"p1"}))
    with pytest.raises(Forbidden):
        visibility(USER, "audit.read")


def test_unknown_action_is_an_internal_error() -> None:
    with pytest.raises(KeyError):
        reach(Role.USER, "session.fly")


def test_superadmin_has_all_user_actions_on_all_targets_except_personal_ones() -> None:
    # No role may enter another user's session, or set what runs in it.
    personal = dict.fromkeys(
        ("session.enter", "schedule.write", "endpoint.write", "pipeline.write"), Reach.OWN
    )
    # All members of a project may chat with its endpoints.
    personal["endpoint.chat"] = Reach.PROJECT
    personal["folder-import.create"] = Reach.OWN
    # A run has the permissions of the member who starts it.
    personal["project-pipeline.run"] = Reach.PROJECT
    for action, row in ACTIONS.items():
        expected = Reach.ALL if Role.USER in row else Reach.NONE
        assert reach(Role.SUPERADMIN, action) is personal.get(action, expected)


def test_session_token_has_only_the_documented_actions() -> None:
    # See docs/security.md, "Permissions of a session".
    assert {name for name in ACTIONS if reach(Role.SESSION, name) is not Reach.NONE} == {
        "session.read",
        "session.read-private",
        "session.write",
        "vfolder.read",
        "quota.read",
        "ssh-key.read",
        "announcement.read-current",
    }
