"""Many concurrent sign-in attempts: fairness between addresses, limits, and blocked addresses."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from bai_services.core.accounts.passwords import (
    ADDRESS_FAILURES_ALLOWED,
    FAILURES_ALLOWED,
    OVERLOADED,
)
from bai_services.core.errors import BaiError, SignInBlocked, SignInRefused, Unavailable
from bai_services.manager.accounts.passwords import (
    MAX_ATTEMPTS,
    MAX_ATTEMPTS_PER_CLIENT,
    RETRY_AFTER_SECONDS,
    PasswordHashes,
)
from tests.testbed.manager import HUB, PASSWORD, SUPERADMIN, World

HOME, ATTACKER = "10.1.2.3", "198.51.100.7"
WRONG = "wrong horse 1!"


class CountedHashes(PasswordHashes):
    """Hashes that count the verified passwords."""

    def __init__(self) -> None:
        super().__init__(memory_kib=8, rounds=1)
        self.verified = 0

    async def verify(self, password_hash: str | None, password: str) -> bool:
        self.verified += 1
        return await super().verify(password_hash, password)


async def attempt(
    world: World, name: str, password: str, client_ip: str = ATTACKER
) -> type[BaiError] | None:
    try:
        await world.manager.accounts.sign_ins.verify(HUB, name, password, client_ip)
    except BaiError as error:
        return type(error)
    return None


async def test_many_attempts_of_a_client_delay_another_client_by_one_computation() -> None:
    hashes = PasswordHashes(memory_kib=8, rounds=1)
    await hashes.verify(None, WRONG)
    done: list[str] = []

    async def verify(client: str) -> None:
        await hashes.verify_attempt(client, None, WRONG)
        done.append(client)

    await asyncio.gather(*(verify("attacker") for _ in range(MAX_ATTEMPTS_PER_CLIENT)), verify("x"))
    assert done.index("x") <= 2


async def test_attempts_above_the_limit_are_rejected_and_do_not_count(world: World) -> None:
    await world.set_password("user")
    flood = [attempt(world, "user", WRONG, "2001:db8::1") for _ in range(MAX_ATTEMPTS_PER_CLIENT)]
    surplus = [
        attempt(world, "user2", WRONG, f"2001:db8::{n}") for n in range(2 * FAILURES_ALLOWED)
    ]
    found = await asyncio.gather(*flood, *surplus, attempt(world, "admin", WRONG, HOME))
    assert found[len(flood) : -1] == [SignInBlocked] * len(surplus)
    assert found[-1] is SignInRefused
    users = world.manager.accounts.users
    assert (await users.get(SUPERADMIN, "user")).is_locked
    assert not (await users.get(SUPERADMIN, "user2")).is_locked
    # The queue is empty again.
    assert await attempt(world, "user2", WRONG, "2001:db8::1") is SignInRefused


async def test_few_clients_cannot_fill_the_queue() -> None:
    hashes = PasswordHashes(memory_kib=8, rounds=1)
    with ExitStack() as places:
        for number in range(MAX_ATTEMPTS // 2):
            places.enter_context(hashes.attempt(f"attacker {number // MAX_ATTEMPTS_PER_CLIENT}"))
        with pytest.raises(SignInBlocked) as blocked:
            places.enter_context(hashes.attempt("attacker 0"))
        for number in range(MAX_ATTEMPTS // 2):
            places.enter_context(hashes.attempt(f"client {number}"))
        with pytest.raises(Unavailable) as overloaded:
            places.enter_context(hashes.attempt("one more"))
    details = {"reason": OVERLOADED, "retry_after_seconds": RETRY_AFTER_SECONDS}
    assert (blocked.value.details, overloaded.value.details) == (details, details)
    with hashes.attempt("one more"):
        pass


async def test_blocked_address_without_known_accounts_needs_no_computation(world: World) -> None:
    await world.set_password("user")
    hashes = world.manager.accounts.sign_ins.passwords = CountedHashes()
    for number in range(ADDRESS_FAILURES_ALLOWED):
        assert await attempt(world, f"name-{number}", WRONG) is SignInRefused
    assert hashes.verified == ADDRESS_FAILURES_ALLOWED
    assert await attempt(world, "user", PASSWORD) is SignInBlocked
    assert await attempt(world, "nobody", WRONG) is SignInBlocked
    assert hashes.verified == ADDRESS_FAILURES_ALLOWED


async def test_blocked_address_of_a_user_needs_a_computation_for_every_name(world: World) -> None:
    await world.set_password("user")
    hashes = world.manager.accounts.sign_ins.passwords = CountedHashes()
    assert await attempt(world, "user", PASSWORD, HOME) is None
    for number in range(ADDRESS_FAILURES_ALLOWED):
        await attempt(world, f"name-{number}", WRONG, HOME)
    hashes.verified = 0
    assert await attempt(world, "user2", WRONG, HOME) is SignInBlocked
    assert await attempt(world, "nobody", WRONG, HOME) is SignInBlocked
    assert await attempt(world, "user", PASSWORD, HOME) is None
    assert hashes.verified == 3
