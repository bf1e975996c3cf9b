"""Lockouts after failed sign-ins, by account and address; errors do not reveal accounts."""

from __future__ import annotations

import pytest

from bai_services.core.accounts.passwords import (
    ADDRESS_FAILURES_ALLOWED,
    BLOCK_TIME,
    FAILURES_ALLOWED,
    MAX_DELAY_SECONDS,
)
from bai_services.core.errors import BaiError, Forbidden, SignInBlocked, SignInRefused
from bai_services.manager.accounts.lockouts import MAX_DELAYED, canonical, network_of
from tests.testbed.manager import HUB, PASSWORD, SUPERADMIN, MovableClock, World

HOME, ABROAD, ATTACKER = "10.1.2.3", "192.0.2.9", "198.51.100.7"
WRONG = "wrong horse 1!"


async def attempt(
    world: World, name: str, password: str, client_ip: str = ATTACKER
) -> type[BaiError] | None:
    try:
        await world.manager.accounts.sign_ins.verify(HUB, name, password, client_ip)
    except BaiError as error:
        return type(error)
    return None


@pytest.fixture
async def user_world(world: World) -> World:
    await world.set_password("user")
    return world


async def fail_sign_ins(world: World, name: str, count: int, client_ip: str = ATTACKER) -> None:
    for _ in range(count):
        await attempt(world, name, WRONG, client_ip)


async def test_failures_with_user_name_and_email_add_up(user_world: World) -> None:
    await fail_sign_ins(user_world, "user", FAILURES_ALLOWED // 2)
    await fail_sign_ins(user_world, "\uff35SER@Example.com ", FAILURES_ALLOWED // 2)
    for name in ("user", "user@example.com"):
        assert await attempt(user_world, name, PASSWORD) is not None
    assert (await user_world.manager.accounts.users.get(SUPERADMIN, "user")).is_locked


async def test_message_has_the_rounded_up_minutes(user_world: World, clock: MovableClock) -> None:
    await fail_sign_ins(user_world, "user", FAILURES_ALLOWED)
    sign_ins = user_world.manager.accounts.sign_ins
    minutes = int(BLOCK_TIME.total_seconds()) // 60
    for seconds, text in ((0, f"{minutes} minutes"), (1, f"{minutes} minutes"), (59, "1 minute")):
        if text == "1 minute":
            clock.advance(minutes=minutes - 1)
        with pytest.raises(SignInBlocked, match=f"try again in {text}$"):
            await sign_ins.verify(HUB, "user", PASSWORD, ATTACKER)
        clock.advance(seconds=seconds)


async def test_lockout_does_not_apply_to_a_known_address(user_world: World) -> None:
    assert await attempt(user_world, "user", PASSWORD, HOME) is None
    await fail_sign_ins(user_world, "user", 2 * FAILURES_ALLOWED)
    assert await attempt(user_world, "user", PASSWORD, ABROAD) is SignInBlocked
    assert await attempt(user_world, "user", PASSWORD, HOME) is None
    # The sign-in from the known address does not unlock the account for other addresses.
    assert await attempt(user_world, "user", PASSWORD, ABROAD) is SignInBlocked
    # A wrong password gives the error of the lockout, even at the known address.
    assert await attempt(user_world, "user", WRONG, HOME) is SignInBlocked
    assert await attempt(user_world, "nobody", WRONG, HOME) is SignInRefused


async def test_address_of_a_rejected_account_does_not_become_known(user_world: World) -> None:
    users = user_world.manager.accounts.users
    await users.update(SUPERADMIN, "user", {"status": "inactive"})
    assert await attempt(user_world, "user", PASSWORD, HOME) is SignInRefused
    await users.update(SUPERADMIN, "user", {"status": "active"})
    await fail_sign_ins(user_world, "user", 2 * FAILURES_ALLOWED)
    assert await attempt(user_world, "user", PASSWORD, HOME) is SignInBlocked


async def test_failures_from_a_known_address_are_delayed(user_world: World) -> None:
    assert await attempt(user_world, "user", PASSWORD, HOME) is None
    waits: dict[str, list[float]] = {"user": [], "nobody": []}
    for name, seen in waits.items():

        async def pause(seconds: float, seen: list[float] = seen) -> None:
            seen.append(seconds)

        user_world.manager.accounts.sign_ins.lockouts.pause = pause
        await fail_sign_ins(user_world, name, FAILURES_ALLOWED + 6, HOME)
    assert waits["user"] == [1, 2, 4, 8, MAX_DELAY_SECONDS, MAX_DELAY_SECONDS]
    assert waits["nobody"] == waits["user"]
    assert await attempt(user_world, "user", PASSWORD, HOME) is None
    assert BLOCK_TIME.total_seconds() > MAX_DELAYED * MAX_DELAY_SECONDS


async def test_address_that_tries_many_names_is_blocked(user_world: World) -> None:
    assert await attempt(user_world, "user", PASSWORD, HOME) is None
    for number in range(ADDRESS_FAILURES_ALLOWED):
        assert await attempt(user_world, f"name-{number}", WRONG, HOME) is SignInRefused
    assert await attempt(user_world, "name-x", WRONG, HOME) is SignInBlocked
    assert await attempt(user_world, "user", PASSWORD, HOME) is None
    assert await attempt(user_world, "name-x", WRONG, ABROAD) is SignInRefused


async def test_lockout_of_a_user_name_does_not_reveal_its_email(
    user_world: World,
) -> None:
    """An attacker could otherwise lock a name and then test which email address is locked."""
    await fail_sign_ins(user_world, "user", FAILURES_ALLOWED)
    for password in (WRONG, PASSWORD):
        assert await attempt(user_world, "user@example.com", password) is SignInRefused


async def test_administrator_sees_and_removes_a_lockout(
    user_world: World, clock: MovableClock
) -> None:
    users = user_world.manager.accounts.users
    shown = await users.get(SUPERADMIN, "user")
    assert (shown.is_locked, shown.locked_until) == (False, None)
    await fail_sign_ins(user_world, "user", FAILURES_ALLOWED)
    shown = await users.get(SUPERADMIN, "user")
    assert (shown.is_locked, shown.locked_until) == (True, clock() + BLOCK_TIME)
    with pytest.raises(Forbidden):
        await users.unlock(await user_world.caller("user"), "user")
    await users.unlock(await user_world.caller("domain-admin"), "user")
    assert not (await users.get(SUPERADMIN, "user")).is_locked
    assert await attempt(user_world, "user", PASSWORD) is None
    await fail_sign_ins(user_world, "user", FAILURES_ALLOWED, ABROAD)
    clock.advance(seconds=BLOCK_TIME.total_seconds() + 1)
    assert not (await users.get(SUPERADMIN, "user")).is_locked


async def test_unlocking_an_account_unblocks_no_address(user_world: World) -> None:
    users = user_world.manager.accounts.users
    await fail_sign_ins(user_world, "user", FAILURES_ALLOWED)
    for number in range(ADDRESS_FAILURES_ALLOWED):
        await attempt(user_world, f"name-{number}", WRONG)
    await users.unlock(SUPERADMIN, "user")
    assert not (await users.get(SUPERADMIN, "user")).is_locked
    # The address from which the attack came stays blocked, also for the unlocked account.
    assert await attempt(user_world, "user", PASSWORD, ATTACKER) is SignInBlocked
    assert await attempt(user_world, "name-x", WRONG, ATTACKER) is SignInBlocked
    assert await attempt(user_world, "user", PASSWORD, ABROAD) is None
    # A sign-in from elsewhere does not unblock the address either.
    assert await attempt(user_world, "user", PASSWORD, ATTACKER) is SignInBlocked


async def test_unlocking_an_account_keeps_the_failures_of_addresses(user_world: World) -> None:
    users = user_world.manager.accounts.users
    for number in range(ADDRESS_FAILURES_ALLOWED - 1):
        await attempt(user_world, f"name-{number}", WRONG)
    await users.unlock(SUPERADMIN, "user")
    assert await attempt(user_world, "name-x", WRONG) is SignInRefused
    assert await attempt(user_world, "name-x", WRONG) is SignInBlocked


def test_equivalent_names_and_addresses_are_counted_together() -> None:
    assert canonical("\uff35ser\u3000") == canonical(" USER ") == "user"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff") != network_of("2001:db8:1::")
    assert network_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert network_of("no address") == ""
