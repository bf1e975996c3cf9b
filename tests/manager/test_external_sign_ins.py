"""Sign-in with identities at OpenID providers: linking, new accounts, and the rules of accounts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from bai_services.core.accounts.external_identities import ExternalUser, ProviderRules
from bai_services.core.accounts.one_time_codes import CodeRules, SecondFactor
from bai_services.core.accounts.passwords import FAILURES_ALLOWED
from bai_services.core.accounts.roles import Role
from bai_services.core.errors import AlreadyExists, BaiError, Conflict, Forbidden, NotFound
from bai_services.core.listing import ListQuery
from tests.testbed.manager import (
    HUB,
    PASSWORD,
    SUPERADMIN,
    MovableClock,
    World,
    known_world,
    manager_on,
)

IP = "10.1.2.3"
NOBODY = ProviderRules()
CREATES = ProviderRules(creates_accounts=True, domain="default", projects=["default"])
ADA = ExternalUser(
    provider="uni",
    issuer="https://sso.example.org",
    subject="0001",
    username="Ada",
    email="ada@uni.example",
    is_email_verified=True,
    full_name="Ada L.",
)
pytestmark = pytest.mark.both_databases


@pytest.fixture
async def codes_world(
    demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> AsyncIterator[World]:
    options: dict[str, Any] = {"one_time_codes": CodeRules.parse("optional,acme=required")}
    async with manager_on(
        demo_database_url, tmp_path, clock, is_migrated=True, **options
    ) as manager:
        yield await known_world(manager, clock)


async def sign_in(
    world: World,
    user: ExternalUser = ADA,
    rules: ProviderRules = NOBODY,
    *,
    ip: str = IP,
    code: str = "",
) -> str:
    """Return the user name of the account, or the reason of the rejection after a space."""
    try:
        account = await world.manager.accounts.external_sign_ins.verify(
            HUB, user, rules, ip, SecondFactor(code)
        )
    except BaiError as error:
        return f" {error.details.get('reason', error.code)}"
    return account.username


async def test_only_the_hub_signs_identities_in(world: World) -> None:
    caller = await world.caller("user")
    service = world.manager.accounts.external_sign_ins
    with pytest.raises(Forbidden):
        await service.verify(caller, ADA, CREATES, IP, SecondFactor())
    with pytest.raises(Forbidden):
        await service.link(caller, "user", ADA, IP)


async def test_an_identity_without_account_is_rejected_unless_accounts_are_created(
    world: World,
) -> None:
    assert await sign_in(world) == " not-linked"
    assert await sign_in(world, rules=CREATES) == "ada"
    account = await world.manager.accounts.users.get(SUPERADMIN, "ada")
    assert (account.email, account.full_name, account.role) == (ADA.email, "Ada L.", Role.USER)
    assert [project.name for project in account.projects] == ["default"]
    # The user is identified by issuer and subject only.
    renamed = replace(ADA, username="user", email="user@example.com")
    assert await sign_in(world, renamed) == "ada"
    for other in (replace(ADA, subject="0002"), replace(ADA, issuer="https://evil.example")):
        assert await sign_in(world, other) == " not-linked"
        assert await sign_in(world, other, CREATES) == " account-exists"
    page = await world.manager.audit.page(SUPERADMIN, ListQuery(limit=100))
    assert {"sign-in.openid", "user.create"} <= {entry.action for entry in page.items}


@pytest.mark.parametrize(
    "change, reason",
    [
        pytest.param({"username": "user"}, "account-exists", id="name of another account"),
        pytest.param(
            {"email": "USER@example.com"}, "account-exists", id="address of another account"
        ),
        pytest.param({"username": "a b"}, "invalid-name", id="invalid name"),
        pytest.param({"username": ""}, "invalid-name", id="no name"),
        pytest.param({"is_email_verified": False}, "no-verified-email", id="unverified address"),
        pytest.param({"email": ""}, "no-verified-email", id="no address"),
    ],
)
async def test_no_account_is_created_with_these_claims(
    world: World, change: dict[str, Any], reason: str
) -> None:
    assert await sign_in(world, replace(ADA, **change), CREATES) == f" {reason}"


async def test_concurrent_first_sign_ins_create_one_account(world: World) -> None:
    names = await asyncio.gather(*(sign_in(world, rules=CREATES) for _ in range(4)))
    assert set(names) == {"ada"}


async def test_only_a_verified_address_links_and_only_if_the_operator_allows_links(
    world: World,
) -> None:
    links = ProviderRules(links_email=True)
    mine = replace(ADA, email="User@example.com")
    assert await sign_in(world, mine) == " not-linked"
    assert await sign_in(world, replace(mine, is_email_verified=False), links) == " not-linked"
    # An identity with the address of an administrator is not linked to the administrator's account.
    assert await sign_in(world, replace(mine, email="admin@example.com"), links) == " not-linked"
    assert await sign_in(world, mine, links) == "user"
    assert await sign_in(world, mine) == "user"
    # Another identity of the provider with the same address is not linked.
    assert await sign_in(world, replace(mine, subject="0002"), links) == " not-linked"


async def test_another_letter_with_the_same_lower_case_is_another_address(world: World) -> None:
    spec = {"username": "kate", "email": "kate@example.com", "domain": "default"}
    await world.manager.accounts.users.create(SUPERADMIN, spec)
    links = ProviderRules(links_email=True)
    kelvin = replace(ADA, email="\N{KELVIN SIGN}ate@example.com")
    assert await sign_in(world, kelvin, links) == " not-linked"
    assert await sign_in(world, kelvin, replace(CREATES, links_email=True)) == " account-exists"
    assert await sign_in(world, replace(ADA, email="KATE@example.com"), links) == "kate"


async def test_an_address_links_only_after_the_one_time_code(codes_world: World) -> None:
    service = codes_world.manager.accounts.external_sign_ins
    codes = codes_world.manager.accounts.one_time_codes
    links = ProviderRules(links_email=True)
    mine = replace(ADA, email="user@example.com")
    caller = await codes_world.caller("user")
    begun = await codes.begin(caller)
    totp = TOTP(base64.b32decode(begun.secret), 6, SHA1(), 30)
    code = totp.generate(int(codes_world.clock().timestamp())).decode()
    done = await codes.confirm(caller, begun.registration, code)
    assert await sign_in(codes_world, mine, links) == " need-one-time-code"
    assert await sign_in(codes_world, mine, links, code="123456") == " wrong-one-time-code"
    assert (await service.identities(HUB, "user")).items == []
    assert await sign_in(codes_world, mine, links, code=done.recovery_codes[0]) == "user"
    assert len((await service.identities(HUB, "user")).items) == 1
    # Another identity with this address is rejected without a request for a code.
    assert await sign_in(codes_world, replace(mine, subject="0002"), links) == " not-linked"


async def test_concurrent_sign_ins_with_one_address_link_one_identity(world: World) -> None:
    links = ProviderRules(links_email=True)
    mine = [replace(ADA, email="user@example.com", subject=str(n % 2)) for n in range(6)]
    results = await asyncio.gather(*(sign_in(world, one, links) for one in mine))
    assert sorted(results) == [*[" not-linked"] * 3, *["user"] * 3]


async def test_rules_of_the_account_apply(world: World) -> None:
    await sign_in(world, rules=CREATES)
    users = world.manager.accounts.users
    await users.update(SUPERADMIN, "ada", {"allowed_client_ip": ["10.1.0.0/16"]})
    assert await sign_in(world, ip="10.2.0.1") == " address"
    assert await sign_in(world) == "ada"
    await users.update(SUPERADMIN, "ada", {"status": "inactive"})
    assert await sign_in(world) == " inactive"
    await users.delete(SUPERADMIN, "ada")
    assert await sign_in(world, rules=CREATES) == " deleted"


async def test_a_link_needs_the_password_if_the_account_has_one(world: World) -> None:
    service = world.manager.accounts.external_sign_ins
    await world.set_password("user")

    async def confirm(name: str, password: str, ip: str = IP) -> str:
        try:
            await service.confirm_link(HUB, name, password, ip, SecondFactor())
        except BaiError as error:
            return error.code
        return ""

    assert (await service.identities(HUB, "user")).has_password
    assert await confirm("user", "wrong horse 1!") == "sign-in-refused"
    assert await confirm("user", PASSWORD) == ""
    # This account has only an identity, so there is no password to ask for.
    assert await sign_in(world, rules=CREATES) == "ada"
    assert not (await service.identities(HUB, "ada")).has_password
    assert await confirm("ada", "") == ""
    # Wrong passwords count for the lockout of sign-ins.
    for _ in range(FAILURES_ALLOWED):
        await confirm("user", "wrong horse 1!", "10.9.9.9")
    assert await confirm("user", PASSWORD, "10.9.9.9") == "sign-in-blocked"


async def test_a_user_links_and_unlinks_identities(world: World) -> None:
    service = world.manager.accounts.external_sign_ins
    await world.set_password("user")
    (identity,) = (await service.link(HUB, "user", ADA, IP)).items
    assert (identity.provider, identity.subject) == ("uni", "0001")
    assert await sign_in(world) == "user"
    with pytest.raises(AlreadyExists):
        await service.link(HUB, "user2", ADA, IP)
    with pytest.raises(AlreadyExists):
        await service.link(HUB, "user", replace(ADA, subject="0002"), IP)
    with pytest.raises(NotFound):
        await service.unlink(HUB, "user2", identity.id, IP)
    await service.unlink(HUB, "user", identity.id, IP)
    assert await sign_in(world) == " not-linked"
    # A user without a password cannot unlink the last identity, but an administrator can.
    await sign_in(world, rules=CREATES)
    (identity,) = (await service.identities(HUB, "ada")).items
    with pytest.raises(Conflict):
        await service.unlink(HUB, "ada", identity.id, IP)
    users = world.manager.accounts.users
    with pytest.raises(Forbidden):
        await users.remove_identity(await world.caller("ada"), "ada", identity.id)
    await users.remove_identity(await world.caller("domain-admin"), "ada", identity.id)
    assert await sign_in(world) == " not-linked"
    assert (await users.identities(SUPERADMIN, "ada")).items == []


async def test_a_one_time_code_is_needed_unless_the_provider_asks_for_a_second_factor(
    codes_world: World,
) -> None:
    world = codes_world
    assert await sign_in(world, rules=CREATES) == "ada"
    codes, caller = world.manager.accounts.one_time_codes, await world.caller("ada")
    begun = await codes.begin(caller)
    totp = TOTP(base64.b32decode(begun.secret), 6, SHA1(), 30)

    def code() -> str:
        world.clock.advance(seconds=30)
        return totp.generate(int(world.clock().timestamp())).decode()

    await codes.confirm(caller, begun.registration, code())
    assert await sign_in(world) == " need-one-time-code"
    assert await sign_in(world, code="000000") == " wrong-one-time-code"
    assert await sign_in(world, code=code()) == "ada"
    assert await sign_in(world, rules=ProviderRules(skips_code=True)) == "ada"
    acme = replace(CREATES, domain="acme", projects=[])
    bob = replace(ADA, subject="2", username="bob", email="bob@acme.example")
    verify = world.manager.accounts.external_sign_ins.verify
    account = await verify(HUB, bob, acme, IP, SecondFactor())
    assert account.need_code_registration
