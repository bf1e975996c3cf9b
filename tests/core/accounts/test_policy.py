"""Caps: violations, remaining resources, messages."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.core.errors import InvalidRequest, QuotaExceeded
from bai_services.core.resources import Caps, ResourceSlots
from bai_services.core.scheduling.caps import (
    Scope,
    ScopeCaps,
    container_violations,
    highest,
    left,
    pending_violations,
    raise_if_violated,
    violations,
)

KEYPAIR = Scope("keypair", "AK")
DOMAIN = Scope("domain", "default")
ONE = ResourceSlots.parse({"cpu": "1", "mem": "1g", "cuda.shares": "0.5"})


def scope_caps(scope: Scope = KEYPAIR, **facts: Any) -> ScopeCaps:
    return ScopeCaps(scope, scope.id, **facts)


@pytest.mark.parametrize(
    "given, used, broken",
    [
        pytest.param(scope_caps(), {}, [], id="no cap"),
        pytest.param(
            scope_caps(is_closed=True),
            {},
            ["cpu", "cuda.shares", "mem"],
            id="closed policy: an unlisted slot has the limit 0",
        ),
        pytest.param(scope_caps(slots=Caps({"cuda.shares": 0})), {}, ["cuda.shares"], id="limit 0"),
        pytest.param(
            scope_caps(slots=Caps.parse({"cpu": "unlimited", "mem": -1}), is_closed=True),
            {"cpu": 10**9},
            ["cuda.shares"],
            id="closed policy: unlimited and -1 remove the limit of a slot",
        ),
        pytest.param(scope_caps(slots={"cpu": 1000}), {}, [], id="exactly the cap"),
        pytest.param(
            scope_caps(slots={"cpu": 1000}), {"cpu": 1}, ["cpu"], id="one millicore above the cap"
        ),
        pytest.param(scope_caps(max_sessions=1), {"sessions": 1}, ["sessions"], id="session count"),
        pytest.param(scope_caps(max_sessions=0), {}, ["sessions"], id="session cap of 0"),
    ],
)
def test_exceeded_caps_are_returned(
    given: ScopeCaps, used: dict[str, int], broken: list[str]
) -> None:
    assert [v.slot for v in violations([given], ONE, {given.scope: used})] == broken


def test_quota_error_names_every_violation() -> None:
    two = [scope_caps(slots={"cpu": 500}), scope_caps(DOMAIN, slots={"mem": 2**30})]
    usage = {KEYPAIR: {"cpu": 200}, DOMAIN: {"mem": 2**29}}
    with pytest.raises(QuotaExceeded) as caught:
        raise_if_violated(violations(two, ONE, usage))
    assert "keypair AK may have at most cpu=0.5, of which 0.3 is left" in caught.value.message
    assert "domain default may have at most mem=1g, of which 512m is left" in caught.value.message
    assert [v["scope"] for v in caught.value.details["violations"]] == ["keypair", "domain"]


def test_messages_name_a_keypair_by_its_user_and_policy() -> None:
    caps = scope_caps(slots={"cpu": 500}, owner="ann", policy="small")
    (violation,) = violations([caps], ONE, {})
    assert violation.message == (
        "cpu=1 requested, but the keypair of user ann (policy small) may have at most cpu=0.5, "
        "of which 0.5 is left"
    )
    assert (violation.scope_id, violation.scope_text) == (
        "AK",
        "the keypair of user ann (policy small)",
    )


def test_unlimited_cap_is_parsed_and_formatted() -> None:
    caps = Caps.parse({"cpu": " Unlimited ", "mem": "-1", "cuda.device": -1, "cuda.shares": 0})
    assert caps.format() == {
        "cpu": "unlimited", "mem": "unlimited", "cuda.device": "unlimited", "cuda.shares": "0"
    }  # fmt: skip
    assert Caps.parse(caps.format()) == caps
    for slots in ({"cpu": -2}, {"cpu": "-1.0"}, {"gpu": "unlimited"}, {"cpu": True}):
        with pytest.raises(InvalidRequest):
            Caps.parse(slots)
    with pytest.raises(InvalidRequest):
        ResourceSlots.parse({"cpu": "unlimited"})


def test_unlimited_cap_on_pending_sessions_is_never_exceeded() -> None:
    bound = ScopeCaps(KEYPAIR, "AK", max_pending_slots=Caps.parse({"cpu": "unlimited"}))
    assert pending_violations([bound], ONE, {KEYPAIR: {"cpu": 10**9}}) == []


def test_caps_on_pending_sessions_apply_only_to_listed_slots() -> None:
    bound = scope_caps(max_pending_sessions=2, max_pending_slots={"cuda.shares": 500})
    assert pending_violations([bound], ONE, {}) == []
    waiting = {KEYPAIR: {"sessions": 2, "cuda.shares": 100, "cpu": 99_000}}
    assert [v.slot for v in pending_violations([bound], ONE, waiting)] == [
        "sessions",
        "cuda.shares",
    ]


def test_lowest_cap_of_all_scopes_applies() -> None:
    two = [scope_caps(slots={"cpu": 4000}), scope_caps(DOMAIN, slots={"cpu": 8000})]
    assert highest(two, "cpu") == 4000
    assert highest(two, "mem") is None
    assert left(two, "cpu", {DOMAIN: {"cpu": 7000}}) == 1000
    assert left(two, "cpu", {DOMAIN: {"cpu": 9000}}) == 0


@pytest.mark.parametrize(
    "limit, kernels, expected",
    [
        pytest.param(None, 9, [], id="no limit"),
        pytest.param(3, 3, [], id="exactly the cap"),
        pytest.param(
            2,
            3,
            ["3 containers requested, but a session of keypair AK may have at most 2"],
            id="one above the cap",
        ),
    ],
)
def test_number_of_containers_of_one_session_is_capped(
    limit: int | None, kernels: int, expected: list[str]
) -> None:
    found = container_violations([scope_caps(max_containers_per_session=limit)], kernels)
    assert [violation.message for violation in found] == expected
