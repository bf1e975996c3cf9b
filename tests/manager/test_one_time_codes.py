"""One-time codes: registration, sign-in with a code, wrong and used codes, recovery codes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from bai_services.core.accounts.one_time_codes import CodeRules, RecoveryCodes, SecondFactor
from bai_services.core.accounts.passwords import FAILURES_ALLOWED
from bai_services.core.errors import (
    AlreadyExists,
    BaiError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    SignInBlocked,
    SignInRefused,
)
from bai_services.core.listing import ListQuery
from bai_services.db.tables.one_time_codes import one_time_codes, recovery_codes
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

IP = "10.1.2.3"
RULES = CodeRules.parse("optional,acme=required")
pytestmark = pytest.mark.both_databases


@pytest.fixture
async def codes_world(
    demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> AsyncIterator[World]:
    """A manager with optional codes in domain ``default`` and required codes in ``acme``."""
    # The start of a time step, so that tests know how far to move the clock.
    clock.now = datetime.fromtimestamp(clock.now.timestamp() // 30 * 30, UTC)
    options: dict[str, Any] = {"is_migrated": True, "one_time_codes": RULES}
    async with manager_on(demo_database_url, tmp_path, clock, **options) as manager:
        world = await known_world(manager, clock)
        await world.set_password("user")
        await world.set_password("acme-user")
        yield world


def code_at(secret: str, at: datetime) -> str:
    """Return the code that an authenticator app shows."""
    return TOTP(base64.b32decode(secret), 6, SHA1(), 30).generate(int(at.timestamp())).decode()


class Device:
    """An authenticator app of a user, with its recovery codes."""

    def __init__(self, world: World, secret: str, recovery_codes: list[str]) -> None:
        self._world = world
        self.secret = secret
        self.recovery_codes = recovery_codes

    def code(self, seconds: int = 0) -> str:
        """Advance the clock by 30 s; return the code that is valid ``seconds`` after that."""
        self._world.clock.advance(seconds=30)
        return code_at(self.secret, self._world.clock()) if not seconds else self.at(seconds)

    def at(self, seconds: int) -> str:
        now = self._world.clock().timestamp() + seconds
        return code_at(self.secret, datetime.fromtimestamp(now, UTC))


async def register(world: World, username: str = "user") -> Device:
    codes = world.manager.accounts.one_time_codes
    caller = await world.caller(username)
    begun = await codes.begin(caller)
    code = code_at(begun.secret, world.clock())
    confirmed = await codes.confirm(caller, begun.registration, code)
    return Device(world, begun.secret, list(confirmed.recovery_codes))


async def sign_in(
    world: World, code: str = "", *, proof: str = "", password: str = PASSWORD, ip: str = IP
) -> str:
    """Sign in at the Hub; return the reason of a rejection, or an empty string."""
    try:
        await world.manager.accounts.sign_ins.verify(
            HUB, "user", password, ip, SecondFactor(code, proof)
        )
    except BaiError as error:
        return str(error.details.get("reason", error.code))
    return ""


async def test_a_code_is_needed_at_each_sign_in_after_the_registration(codes_world: World) -> None:
    assert await sign_in(codes_world) == ""
    device = await register(codes_world)
    assert await sign_in(codes_world) == "need-one-time-code"
    assert await sign_in(codes_world, "000000") == "wrong-one-time-code"
    assert await sign_in(codes_world, device.code()) == ""
    # With a wrong password, the response does not reveal that the account needs a code.
    assert await sign_in(codes_world, password="wrong horse 1!") == "sign-in-refused"


async def test_a_code_is_accepted_once_and_with_a_drift_of_one_step(codes_world: World) -> None:
    device = await register(codes_world)
    # The code that has confirmed the registration cannot be used again.
    assert await sign_in(codes_world, device.at(0)) == "wrong-one-time-code"
    code = device.code()
    assert await sign_in(codes_world, code) == ""
    assert await sign_in(codes_world, code) == "wrong-one-time-code"
    codes_world.clock.advance(seconds=300)
    for seconds, reason in ((60, "wrong-one-time-code"), (-60, "wrong-one-time-code"), (30, "")):
        assert await sign_in(codes_world, device.at(seconds)) == reason, seconds
    # A code of an earlier step is rejected after a later one.
    assert await sign_in(codes_world, device.at(0)) == "wrong-one-time-code"
    codes_world.clock.advance(seconds=300)
    assert await sign_in(codes_world, f" {device.at(-30)[:3]} {device.at(-30)[3:]} ") == ""


async def test_of_concurrent_sign_ins_with_one_code_one_succeeds(codes_world: World) -> None:
    device = await register(codes_world)
    code = device.code()
    reasons = await asyncio.gather(*(sign_in(codes_world, code) for _ in range(4)))
    assert sorted(reasons) == ["", *["wrong-one-time-code"] * 3]


async def test_a_recovery_code_is_accepted_once_instead_of_a_code(codes_world: World) -> None:
    device = await register(codes_world)
    assert len(set(device.recovery_codes)) == 10
    first, second, *_ = device.recovery_codes
    assert await sign_in(codes_world, first) == ""
    assert await sign_in(codes_world, first) == "wrong-one-time-code"
    assert await sign_in(codes_world, second.upper().replace("-", " ")) == ""
    codes = codes_world.manager.accounts.one_time_codes
    caller = await codes_world.caller("user")
    assert (await codes.state(caller)).recovery_codes_left == 8
    renewed = await codes.renew_recovery_codes(caller, device.code())
    assert await sign_in(codes_world, device.recovery_codes[2]) == "wrong-one-time-code"
    assert await sign_in(codes_world, renewed.recovery_codes[0]) == ""


async def test_the_database_contains_neither_secret_nor_recovery_codes(codes_world: World) -> None:
    device = await register(codes_world)
    async with codes_world.manager.database.read() as tx:
        rows = [*await tx.execute(sa.select(one_time_codes))]
        rows += [*await tx.execute(sa.select(recovery_codes))]
    stored = str(rows)
    for code in device.recovery_codes:
        assert code not in stored and code.replace("-", "") not in stored
    secret = base64.b32decode(device.secret)
    for form in (device.secret, secret.hex(), base64.b64encode(secret).decode(), str(secret)[2:-1]):
        assert form not in stored
    page = await codes_world.manager.audit.page(SUPERADMIN, ListQuery())
    assert device.secret not in str(page) and device.recovery_codes[0] not in str(page)
    assert "user.register-authenticator" in str(page)


async def test_wrong_codes_lock_the_account_for_every_address(codes_world: World) -> None:
    device = await register(codes_world)
    assert await sign_in(codes_world, device.code()) == ""  # the address is known now
    for _ in range(FAILURES_ALLOWED):
        # A sign-in without a code does not reset the count.
        assert await sign_in(codes_world) == "need-one-time-code"
        assert await sign_in(codes_world, "000000") == "wrong-one-time-code"
    for ip in (IP, "10.9.9.9"):
        assert await sign_in(codes_world, device.code(), ip=ip) == "sign-in-blocked", ip
    assert await sign_in(codes_world, device.recovery_codes[0]) == "sign-in-blocked"
    users = codes_world.manager.accounts.users
    assert (await users.get(SUPERADMIN, "user")).is_locked
    await users.unlock(SUPERADMIN, "user")
    assert await sign_in(codes_world, device.code()) == ""


async def test_sign_ins_without_a_code_are_not_counted_as_failed(codes_world: World) -> None:
    await register(codes_world)
    for _ in range(3 * FAILURES_ALLOWED):
        assert await sign_in(codes_world) == "need-one-time-code"
    users = codes_world.manager.accounts.users
    assert not (await users.get(SUPERADMIN, "user")).is_locked


async def test_a_missing_code_does_not_end_a_lock(codes_world: World) -> None:
    await register(codes_world)
    for _ in range(FAILURES_ALLOWED):
        assert await sign_in(codes_world, password="wrong horse 1!") == "sign-in-refused"
    assert await sign_in(codes_world) == "sign-in-blocked"
    assert await sign_in(codes_world) == "sign-in-blocked"


async def test_the_proof_replaces_the_code_until_expiry_or_a_new_registration(
    codes_world: World,
) -> None:
    device = await register(codes_world)
    sign_ins = codes_world.manager.accounts.sign_ins
    account = await sign_ins.verify(HUB, "user", PASSWORD, IP, SecondFactor(device.code()))
    assert await sign_in(codes_world, proof=account.code_proof) == ""
    assert await sign_in(codes_world, proof="x" * 100) == "need-one-time-code"
    begun = await codes_world.manager.accounts.one_time_codes.begin_at_sign_in(HUB, "acme-user")
    assert await sign_in(codes_world, proof=begun.registration) == "need-one-time-code"
    codes_world.clock.advance(seconds=601)
    assert await sign_in(codes_world, proof=account.code_proof) == "need-one-time-code"
    account = await sign_ins.verify(HUB, "user", PASSWORD, IP, SecondFactor(device.code()))
    await codes_world.manager.accounts.users.remove_authenticator(SUPERADMIN, "user")
    await register(codes_world)
    assert await sign_in(codes_world, proof=account.code_proof) == "need-one-time-code"


async def test_a_password_change_needs_the_code(codes_world: World) -> None:
    device = await register(codes_world)
    change = codes_world.manager.accounts.sign_ins.change_password
    with pytest.raises(SignInRefused) as refused:
        await change("user", PASSWORD, "another horse 2?", IP)
    assert refused.value.details["reason"] == "need-one-time-code"
    factor = SecondFactor(device.code())
    await change("user", PASSWORD, "another horse 2?", IP, factor=factor)
    assert await sign_in(codes_world, device.code(), password="another horse 2?") == ""


async def test_account_deletion_needs_the_code(codes_world: World) -> None:
    device = await register(codes_world)
    deletions = codes_world.manager.accounts.deletions
    for code, reason in (("", "need-one-time-code"), ("000000", "wrong-one-time-code")):
        with pytest.raises(SignInRefused) as refused:
            await deletions.delete(HUB, "user", PASSWORD, IP, SecondFactor(code))
        assert refused.value.details["reason"] == reason
    await deletions.delete(HUB, "user", PASSWORD, IP, SecondFactor(device.code(30)))
    assert (await codes_world.manager.accounts.users.get(SUPERADMIN, "user")).status == "deleted"
    async with codes_world.manager.database.read() as tx:
        assert await tx.scalar(sa.select(sa.func.count()).select_from(one_time_codes)) == 0


async def test_registration_is_required_in_some_domains(
    demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    options = {"one_time_codes": RULES}
    async with manager_with_hub(demo_database_url, tmp_path, clock, **options) as (_, manager):
        world = World(manager, clock)
        await world.set_password("acme-user")
        sign_ins, codes = manager.accounts.sign_ins, manager.accounts.one_time_codes
        account = await sign_ins.verify(HUB, "acme-user", PASSWORD, IP)
        assert (account.need_code_registration, account.code_proof) == (True, "")
        with pytest.raises(SignInRefused, match="register an authenticator first"):
            await sign_ins.create_token("acme-user", PASSWORD, IP)
        with pytest.raises(Forbidden):
            await codes.begin_at_sign_in(await world.caller("acme-user"), "acme-user")
        with pytest.raises(Forbidden, match="not required"):
            await codes.begin_at_sign_in(HUB, "user")
        begun = await codes.begin_at_sign_in(HUB, "acme-user")
        code = code_at(begun.secret, clock())
        done = await codes.confirm_at_sign_in(HUB, "acme-user", begun.registration, code, IP)
        factor = SecondFactor(proof=done.proof)
        account = await sign_ins.verify(HUB, "acme-user", PASSWORD, IP, factor)
        assert not account.need_code_registration
        with pytest.raises(SignInRefused, match="code of your authenticator"):
            await sign_ins.create_token("acme-user", PASSWORD, IP)
        factor = SecondFactor(done.recovery_codes[0])
        assert (await sign_ins.create_token("acme-user", PASSWORD, IP, factor))["token"]


async def test_a_registration_is_bound_to_user_password_and_time(codes_world: World) -> None:
    codes = codes_world.manager.accounts.one_time_codes
    user, user2 = await codes_world.caller("user"), await codes_world.caller("user2")
    begun = await codes.begin(user)

    def code() -> str:
        return code_at(begun.secret, codes_world.clock())

    with pytest.raises(InvalidRequest, match="code is wrong"):
        await codes.confirm(user, begun.registration, "000000")
    with pytest.raises(InvalidRequest, match="expired"):
        await codes.confirm(user2, begun.registration, code())
    await codes_world.set_password("user", "another horse 2?")
    codes_world.clock.advance(seconds=1)
    await codes_world.set_password("user")
    with pytest.raises(InvalidRequest, match="expired"):
        await codes.confirm(user, begun.registration, code())
    begun = await codes.begin(user)
    codes_world.clock.advance(seconds=601)
    with pytest.raises(InvalidRequest, match="expired"):
        await codes.confirm(user, begun.registration, code())
    begun = await codes.begin(user)
    results = await asyncio.gather(
        *(codes.confirm(user, begun.registration, code()) for _ in range(2)),
        return_exceptions=True,
    )
    assert {type(result) for result in results} == {RecoveryCodes, AlreadyExists}
    with pytest.raises(AlreadyExists):
        await codes.begin(user)


async def test_a_user_removes_the_authenticator_only_with_a_code(codes_world: World) -> None:
    device = await register(codes_world)
    codes = codes_world.manager.accounts.one_time_codes
    caller = await codes_world.caller("user")
    with pytest.raises(InvalidRequest, match="code is wrong"):
        await codes.remove(caller, "000000")
    await codes.remove(caller, device.code())
    assert await sign_in(codes_world) == ""
    with pytest.raises(NotFound):
        await codes.remove(caller, device.code())
    device = await register(codes_world)
    for _ in range(FAILURES_ALLOWED):
        with pytest.raises(InvalidRequest):
            await codes.remove(caller, "000000")
    with pytest.raises(SignInBlocked):
        await codes.remove(caller, device.code())


async def test_administrators_reset_the_authenticator_of_others_only(codes_world: World) -> None:
    await register(codes_world)
    await register(codes_world, "admin")
    users = codes_world.manager.accounts.users
    domain_admin = await codes_world.caller("domain-admin")
    assert (await users.get(domain_admin, "user")).has_authenticator
    await users.remove_authenticator(domain_admin, "user")
    assert not (await users.get(domain_admin, "user")).has_authenticator
    with pytest.raises(NotFound):
        await users.remove_authenticator(domain_admin, "user")
    with pytest.raises(Forbidden):
        await users.remove_authenticator(domain_admin, "admin")
    with pytest.raises(Conflict, match="your own"):
        await users.remove_authenticator(await codes_world.caller("admin"), "admin")
    assert (await users.get(SUPERADMIN, "admin")).has_authenticator


async def test_codes_that_are_off_are_neither_registered_nor_asked_for(
    codes_world: World, tmp_path: Path, clock: MovableClock
) -> None:
    await register(codes_world)
    url = codes_world.manager.settings.database_url
    async with manager_on(url, tmp_path, clock, is_migrated=True) as manager:
        world = World(manager, clock)
        assert await sign_in(world) == ""
        with pytest.raises(Forbidden, match="off"):
            await manager.accounts.one_time_codes.begin(await world.caller("user2"))
