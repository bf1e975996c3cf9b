"""Password sign-in: accepted accounts, errors that reveal no account, and lockouts."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from bai_services.core.accounts.passwords import BLOCK_TIME, FAILURES_ALLOWED
from bai_services.core.errors import (
    BaiError,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotSignedIn,
    SignInBlocked,
    SignInRefused,
    Unavailable,
)
from bai_services.core.listing import ListQuery
from bai_services.core.record_fields import fields_of
from bai_services.db.accounts.callers import AccountStore
from bai_services.manager.accounts.passwords import PasswordHashes
from bai_services.manager.accounts.sign_in_codes import MAX_PENDING
from tests.testbed.fake_hub import manager_with_hub
from tests.testbed.manager import (
    HUB,
    PASSWORD,
    SUPERADMIN,
    MovableClock,
    World,
    known_world,
    manager_on,
)

TOKEN = "hub-token-of-the-browser"
IP = "10.1.2.3"
NEW = "another horse 2?"


@dataclass(frozen=True)
class Outcome:
    """What a client sees of an attempt to sign in: the type and the text of the error.

    ``kind`` is None if the sign-in succeeds.
    """

    kind: type[BaiError] | None
    text: str = ""


async def attempt(world: World, name: str, password: str, client_ip: str = IP) -> Outcome:
    try:
        await world.manager.accounts.sign_ins.verify(HUB, name, password, client_ip)
    except BaiError as error:
        return Outcome(type(error), error.message)
    return Outcome(None)


@pytest.fixture
async def user_world(world: World) -> World:
    await world.set_password("user")
    return world


@pytest.mark.parametrize("name", ["user", "USER ", "user@example.com", " User@Example.COM"])
async def test_user_signs_in_with_user_name_or_email(user_world: World, name: str) -> None:
    account = await user_world.manager.accounts.sign_ins.verify(HUB, name, PASSWORD, IP)
    assert fields_of(account) == {
        "id": await user_world.user_id("user"),
        "username": "user",
        "email": "user@example.com",
        "role": "user",
        "domain": "default",
        "need_password_change": False,
        "password_changed_at": user_world.clock(),
        "is_active": True,
        "hub_groups": ["d-default", "p-default-default"],
        "hub_roles": [],
        "max_concurrent_logins": None,
        "need_code_registration": False,
        "code_proof": "",
    }


async def test_only_the_hub_may_verify_passwords(user_world: World) -> None:
    caller = await user_world.caller("user")
    with pytest.raises(Forbidden):
        await user_world.manager.accounts.sign_ins.verify(caller, "user", PASSWORD, IP)
    with pytest.raises(Forbidden):
        await user_world.manager.accounts.sign_ins.account(caller, "user")


# Prefixes of scopes that let a user act as another user in the Hub.
SCOPES_TO_ACT_AS_OTHERS = (
    "admin:",
    "start:servers",
    "servers",
    "access:servers",
    "tokens",
    "shares",
)


@pytest.mark.parametrize(
    "username, name", [("domain-admin", "bai-domain-admin-default"), ("admin", "bai-superadmin")]
)
async def test_administrators_cannot_act_as_others_in_the_hub(
    world: World, username: str, name: str
) -> None:
    (role,) = (await world.manager.accounts.sign_ins.account(HUB, username)).hub_roles
    assert role.name == name
    assert role.scopes
    assert not [scope for scope in role.scopes if scope.startswith(SCOPES_TO_ACT_AS_OTHERS)]


async def test_domain_administrator_gets_a_hub_role_for_the_domains_group(world: World) -> None:
    (role,) = (await world.manager.accounts.sign_ins.account(HUB, "domain-admin")).hub_roles
    assert "admin-ui" in role.scopes
    others = [scope for scope in role.scopes if scope != "admin-ui"]
    assert others and all(scope.endswith("!group=d-default") for scope in others)
    # The role must not read servers, because their options contain the environment variables of
    # sessions.
    assert not any("servers" in scope for scope in role.scopes)
    with pytest.raises(NotFound):
        await world.manager.accounts.sign_ins.account(HUB, "nobody")


async def test_unknown_name_gives_the_same_error_as_a_wrong_password(user_world: World) -> None:
    wrong = await attempt(user_world, "user", "wrong horse 1!")
    unknown = await attempt(user_world, "no-such-user", "wrong horse 1!")
    without_password = await attempt(user_world, "user2", "wrong horse 1!")
    assert wrong.kind is SignInRefused
    assert wrong == unknown == without_password


async def test_unknown_name_costs_the_same_computation_as_a_known_one(
    user_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    verify = PasswordHasher.verify

    def verify_and_record(hasher: PasswordHasher, password_hash: str, password: str) -> bool:
        hashed.append(password_hash)
        return verify(hasher, password_hash, password)

    monkeypatch.setattr(PasswordHasher, "verify", verify_and_record)
    await attempt(user_world, "user", "wrong horse 1!")
    await attempt(user_world, "no-such-user", "wrong horse 1!")
    await attempt(user_world, "user2", "wrong horse 1!")
    known, unknown, without_password = hashed
    # Both hashes have the same algorithm and parameters: their checks take the same time.
    assert known.rsplit("$", 2)[0] == unknown.rsplit("$", 2)[0]
    assert unknown == without_password


@pytest.mark.parametrize("name", ["user", "no-such-user"])
async def test_name_is_blocked_for_twenty_minutes_after_ten_failures(
    user_world: World, clock: MovableClock, name: str
) -> None:
    for _ in range(FAILURES_ALLOWED):
        assert (await attempt(user_world, name, "wrong horse 1!")).kind is SignInRefused
    blocked = await attempt(user_world, name, PASSWORD)
    assert blocked.kind is SignInBlocked
    assert "20 minutes" in blocked.text or "21 minutes" in blocked.text
    clock.advance(seconds=BLOCK_TIME.total_seconds() - 1)
    assert (await attempt(user_world, name, PASSWORD)).kind is SignInBlocked
    clock.advance(seconds=2)
    expected = None if name == "user" else SignInRefused
    assert (await attempt(user_world, name, PASSWORD)).kind is expected


async def test_block_gives_the_same_error_for_known_and_unknown_names(user_world: World) -> None:
    for name in ("user", "no-such-user"):
        for _ in range(FAILURES_ALLOWED):
            await attempt(user_world, name, "wrong horse 1!")
    assert await attempt(user_world, "user", PASSWORD) == await attempt(
        user_world, "no-such-user", "x"
    )


@pytest.mark.both_databases
async def test_concurrent_attempts_do_not_exceed_the_limit(user_world: World) -> None:
    outcomes = await asyncio.gather(
        *(attempt(user_world, "user", "wrong horse 1!") for _ in range(FAILURES_ALLOWED + 10))
    )
    assert [a.kind for a in outcomes].count(SignInRefused) == FAILURES_ALLOWED
    assert [a.kind for a in outcomes].count(SignInBlocked) == 10


async def test_correct_password_resets_the_failures(user_world: World) -> None:
    for _ in range(3):
        for _ in range(FAILURES_ALLOWED - 1):
            await attempt(user_world, "user", "wrong horse 1!")
        assert (await attempt(user_world, "user", PASSWORD)).kind is None


async def test_old_failures_expire(user_world: World, clock: MovableClock) -> None:
    for _ in range(FAILURES_ALLOWED - 1):
        await attempt(user_world, "user", "wrong horse 1!")
    clock.advance(seconds=BLOCK_TIME.total_seconds() + 1)
    for _ in range(FAILURES_ALLOWED - 1):
        assert (await attempt(user_world, "user", "wrong horse 1!")).kind is SignInRefused


@pytest.mark.parametrize(
    "changes, reason, text",
    [
        pytest.param({"status": "inactive"}, "inactive", "not active", id="account is inactive"),
        pytest.param(
            {"status": "before-verification"},
            "before-verification",
            "not verified yet",
            id="account is not verified",
        ),
        pytest.param(
            {"allowed_client_ip": ["192.168.0.0/16"]},
            "address",
            f"from {IP}",
            id="address is not allowed",
        ),
    ],
)
async def test_reason_is_only_given_after_a_correct_password(
    user_world: World, changes: dict[str, object], reason: str, text: str
) -> None:
    await user_world.manager.accounts.users.update(SUPERADMIN, "user", changes)
    unknown = await attempt(user_world, "no-such-user", "wrong horse 1!")
    assert await attempt(user_world, "user", "wrong horse 1!") == unknown
    with pytest.raises(SignInRefused, match=text) as caught:
        await user_world.manager.accounts.sign_ins.verify(HUB, "user", PASSWORD, IP)
    assert caught.value.details["reason"] == reason


async def test_only_superadmins_of_an_inactive_domain_can_sign_in(world: World) -> None:
    for name in ("user", "admin"):
        await world.set_password(name)
    await world.manager.accounts.domains.update(SUPERADMIN, "default", {"is_active": False})
    with pytest.raises(SignInRefused, match="domain default is not active"):
        await world.manager.accounts.sign_ins.verify(HUB, "user", PASSWORD, IP)
    assert not (await world.manager.accounts.sign_ins.account(HUB, "user")).is_active
    assert (await world.manager.accounts.sign_ins.verify(HUB, "admin", PASSWORD, IP)).is_active


async def test_deleted_account_gives_the_same_error_as_an_unknown_name(user_world: World) -> None:
    await user_world.manager.accounts.users.delete(SUPERADMIN, "user")
    unknown = await attempt(user_world, "no-such-user", PASSWORD)
    assert await attempt(user_world, "user", PASSWORD) == unknown


async def test_required_password_change_needs_the_old_password(user_world: World) -> None:
    sign_ins = user_world.manager.accounts.sign_ins
    await user_world.manager.accounts.users.update(
        SUPERADMIN, "user", {"need_password_change": True}
    )
    assert (await sign_ins.verify(HUB, "user", PASSWORD, IP)).need_password_change
    with pytest.raises(SignInRefused) as caught:
        await sign_ins.create_token("user", PASSWORD, IP)
    assert caught.value.details["need_password_change"] is True
    with pytest.raises(SignInRefused):
        await sign_ins.change_password("user", "wrong horse 1!", NEW, IP)
    with pytest.raises(InvalidRequest, match="equals the old one"):
        await sign_ins.change_password("user", PASSWORD, PASSWORD, IP)
    with pytest.raises(InvalidRequest, match="must contain a digit"):
        await sign_ins.change_password("user", PASSWORD, "no-digits-here", IP)
    await sign_ins.change_password("user", PASSWORD, NEW, IP)
    account = await sign_ins.verify(HUB, "user", NEW, IP)
    assert account.need_password_change is False
    assert (await attempt(user_world, "user", PASSWORD)).kind is SignInRefused


async def test_password_must_be_changed_after_its_maximum_age(
    demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    options = {"is_migrated": True, "password_max_age_days": 90}
    async with manager_on(demo_database_url, tmp_path, clock, **options) as manager:
        world = await known_world(manager, clock)
        await world.set_password("user")
        sign_ins = manager.accounts.sign_ins
        clock.advance(days=90)
        assert (await sign_ins.verify(HUB, "user", PASSWORD, IP)).need_password_change is False
        clock.advance(seconds=1)
        assert (await sign_ins.verify(HUB, "user", PASSWORD, IP)).need_password_change is True
        with pytest.raises(SignInRefused, match="change the password first"):
            await sign_ins.create_token("user", PASSWORD, IP)
        await sign_ins.change_password("user", PASSWORD, NEW, IP)
        assert (await sign_ins.verify(HUB, "user", NEW, IP)).need_password_change is False


async def test_lockout_applies_to_password_changes(user_world: World) -> None:
    for _ in range(FAILURES_ALLOWED):
        with pytest.raises(SignInRefused):
            await user_world.manager.accounts.sign_ins.change_password(
                "user", "wrong horse 1!", NEW, IP
            )
    with pytest.raises(SignInBlocked):
        await user_world.manager.accounts.sign_ins.change_password("user", PASSWORD, NEW, IP)


async def test_password_is_rehashed_with_new_parameters_at_sign_in(user_world: World) -> None:
    store = AccountStore(user_world.manager.database)
    before = await store.by_sign_in_name("user")
    user_world.manager.accounts.sign_ins.passwords = PasswordHashes(memory_kib=16, rounds=2)
    assert (await attempt(user_world, "user", PASSWORD)).kind is None
    after = await store.by_sign_in_name("user")
    assert before is not None and after is not None
    assert "m=8,t=1" in str(before.password_hash)
    assert "m=16,t=2" in str(after.password_hash)
    assert (await attempt(user_world, "user", PASSWORD)).kind is None


async def test_token_requires_a_hub(user_world: World) -> None:
    with pytest.raises(Unavailable, match="without a Hub"):
        await user_world.manager.accounts.sign_ins.create_token("user", PASSWORD, IP)


@pytest.mark.parametrize(
    "name, password",
    [
        pytest.param("", "x", id="empty name"),
        pytest.param("user\0", PASSWORD, id="NUL"),
        pytest.param("u" * 5000, PASSWORD, id="very long name"),
        pytest.param("user", PASSWORD + "x" * 5000, id="very long password"),
        pytest.param("user@example.com' OR 1=1 --", PASSWORD, id="SQL injection"),
    ],
)
async def test_malformed_input_gives_the_error_of_a_wrong_password(
    user_world: World, name: str, password: str
) -> None:
    assert await attempt(user_world, name, password) == await attempt(user_world, "nobody", "x")


async def test_code_is_valid_for_one_use_in_two_minutes_with_its_verifier(
    user_world: World, clock: MovableClock
) -> None:
    # A verifier and its SHA-256, from RFC 7636, appendix B.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    sign_ins, caller = user_world.manager.accounts.sign_ins, await user_world.caller("user")
    late = sign_ins.create_code(caller, challenge, TOKEN)["code"]
    clock.advance(minutes=2, seconds=1)
    stolen = sign_ins.create_code(caller, challenge, TOKEN)["code"]
    good = sign_ins.create_code(caller, challenge, TOKEN)["code"]
    for code, proof in ((late, verifier), (stolen, "x" * 43), (stolen, verifier), ("made-up", "")):
        with pytest.raises(SignInRefused, match="run bai login again"):
            await sign_ins.redeem_code(code, proof, IP)
    # The code is accepted; the error is that this manager has no Hub.
    with pytest.raises(Unavailable):
        await sign_ins.redeem_code(good, verifier, IP)
    with pytest.raises(SignInRefused):
        await sign_ins.redeem_code(good, verifier, IP)


async def test_code_is_invalid_after_the_browser_has_signed_out(
    demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    async with (
        manager_with_hub(demo_database_url, tmp_path, clock) as (hub, manager),
    ):
        caller = await (await known_world(manager, clock)).caller("user")
        sign_ins = manager.accounts.sign_ins
        # The Hub rejects the token, because the user has signed out.
        code = sign_ins.create_code(caller, challenge, TOKEN)["code"]
        with pytest.raises(SignInRefused, match="run bai login again"):
            await sign_ins.redeem_code(code, verifier, IP)
        assert hub.tokens == {}

        # The user signs out while the code is redeemed.
        async def sign_out() -> None:
            del hub.tokens[TOKEN]

        hub.tokens[TOKEN] = {"kind": "user", "name": "user", "token_id": "browser", "scopes": []}
        hub.token_created = sign_out
        code = sign_ins.create_code(caller, challenge, TOKEN)["code"]
        with pytest.raises(SignInRefused, match="run bai login again"):
            await sign_ins.redeem_code(code, verifier, IP)
        assert hub.tokens == {}


async def test_token_is_revoked_if_the_password_is_changed_while_it_is_created(
    demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with manager_with_hub(demo_database_url, tmp_path, clock) as (hub, manager):
        await (await known_world(manager, clock)).set_password("user")

        async def reset() -> None:
            clock.advance(seconds=1)
            await manager.accounts.users.update(SUPERADMIN, "user", {"password": NEW})

        hub.token_created = reset
        with pytest.raises(SignInRefused, match="the name or the password is wrong"):
            await manager.accounts.sign_ins.create_token("user", PASSWORD, IP)
        assert hub.tokens == {}


async def test_codes_of_a_user_do_not_displace_those_of_others(world: World) -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    sign_ins = world.manager.accounts.sign_ins
    good = sign_ins.create_code(await world.caller("user2"), challenge, TOKEN)["code"]
    caller = await world.caller("user")
    for _ in range(MAX_PENDING + 1):
        sign_ins.create_code(caller, challenge, TOKEN)
    # The code is accepted; the error is that this manager has no Hub.
    with pytest.raises(Unavailable):
        await sign_ins.redeem_code(good, verifier, IP)


async def test_sign_ins_with_a_code_are_counted(
    demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    async with manager_with_hub(demo_database_url, tmp_path, clock) as (hub, manager):
        caller = await (await known_world(manager, clock)).caller("user")
        hub.tokens[TOKEN] = {"name": "user", "kind": "user", "scopes": []}
        code = manager.accounts.sign_ins.create_code(caller, challenge, TOKEN)["code"]
        await manager.accounts.sign_ins.redeem_code(code, verifier, IP)
        with pytest.raises(SignInRefused):
            await manager.accounts.sign_ins.redeem_code(code, verifier, IP)
        count = manager.metrics.registry.get_sample_value
        outcomes = ("done", "refused")
        assert [count("bai_sign_ins_total", {"outcome": o}) for o in outcomes] == [1, 1]


async def test_deactivated_user_cannot_redeem_a_code(user_world: World) -> None:
    challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    code = user_world.manager.accounts.sign_ins.create_code(
        await user_world.caller("user"), challenge, TOKEN
    )["code"]
    await user_world.manager.accounts.users.update(SUPERADMIN, "user", {"status": "inactive"})
    with pytest.raises(SignInRefused, match="not active"):
        await user_world.manager.accounts.sign_ins.redeem_code(
            code, "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", IP
        )


async def test_audit_log_contains_sign_in_outcomes_but_no_secrets(
    user_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await attempt(user_world, "user", "wrong horse 1!")
    await attempt(user_world, "user", PASSWORD)
    page = await user_world.manager.audit.page(
        SUPERADMIN, ListQuery(filters={"action": "sign-in.hub"}, sort=("id",))
    )
    assert [(row.outcome, row.actor) for row in page.items] == [
        ("sign-in-refused", "(not signed in)"),
        ("done", "user"),
    ]
    await user_world.manager.accounts.users.update(SUPERADMIN, "user", {"status": "inactive"})
    await attempt(user_world, "user", PASSWORD)
    page = await user_world.manager.audit.page(
        SUPERADMIN, ListQuery(filters={"action": "sign-in.hub"}, sort=("id",))
    )
    assert [(row.outcome, row.actor) for row in page.items[2:]] == [("sign-in-refused", "user")]
    for secret in ("wrong horse", "correct horse"):
        assert secret not in str(page.items)
        assert secret not in caplog.text


async def test_caller_has_the_current_state_of_the_account(world: World) -> None:
    await world.caller("user")
    await world.manager.accounts.users.update(SUPERADMIN, "user", {"status": "inactive"})
    with pytest.raises(NotSignedIn, match="not active"):
        await world.caller("user")
    await world.manager.accounts.users.update(SUPERADMIN, "user", {"status": "active"})
    await world.manager.accounts.projects.remove_member(SUPERADMIN, "default/default", "user")
    assert (await world.caller("user")).projects == frozenset()
