"""Conversion of the sharing facts that agents report, and allowed shares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bai_services.core.cluster.device_sharing import ANY_SHARE, Level, Sharing


@pytest.mark.parametrize(
    "sharing",
    [
        pytest.param(Sharing(), id="any share, not enforced"),
        pytest.param(Sharing(Level.PROCESS, 250, 250), id="fixed share"),
        pytest.param(Sharing(Level.CGROUP, 50, 1000), id="any share of one device"),
        pytest.param(Sharing(Level.PROCESS, 250, 250, True), id="fixed share, paused"),
        pytest.param(Sharing(Level.PROCESS, 50, 1000, is_uniform=True), id="uniform shares"),
    ],
)
def test_sharing_survives_conversion_to_facts(sharing: Sharing) -> None:
    assert Sharing.from_facts(sharing.to_facts()) == sharing


def test_facts_of_a_device_without_shares_offer_no_share() -> None:
    facts = Sharing(Level.SOFT, most=0).to_facts()
    assert facts == {"enforcement": "soft", "shares": None}
    assert Sharing.from_facts(facts).most == 0


@pytest.mark.parametrize(
    "facts, sharing",
    [
        pytest.param({}, Sharing(), id="no facts (older agent): any share, not enforced"),
        pytest.param(
            {"enforcement": "iron"}, Sharing(), id="unknown level: any share, not enforced"
        ),
        pytest.param({"shares": "some"}, Sharing(most=0), id="shares are not a mapping: no share"),
        pytest.param(
            {"shares": {"least": "0.333", "most": "1", "on_one_device": True}},
            Sharing(most=0),
            id="smallest share is not a multiple of the step: no share",
        ),
    ],
)
def test_missing_or_invalid_sharing_facts_have_defaults(
    facts: dict[str, Any], sharing: Sharing
) -> None:
    assert Sharing.from_facts(facts) == sharing


def test_device_below_the_minimum_enforcement_level_offers_no_shares() -> None:
    soft, process = Sharing(Level.SOFT), Sharing(Level.PROCESS, 250, 250)
    assert soft.restricted_to(Level.NONE) == soft
    assert soft.restricted_to(Level.PROCESS).most == 0
    assert process.restricted_to(Level.PROCESS) == process
    assert [level.value for level in Level] == ["none", "soft", "process", "cgroup", "hardware"]
    assert (Sharing().most, process.clients, Sharing(most=0).clients) == (ANY_SHARE, 4, 0)


UNIFORM = Sharing(Level.PROCESS, 50, 1000, is_uniform=True)


@pytest.mark.parametrize(
    "sharing, shares, share, is_allowed",
    [
        pytest.param(UNIFORM, [], 500, True, id="an empty device accepts any share"),
        pytest.param(UNIFORM, [250, 250], 250, True, id="a share equal to the share in force"),
        pytest.param(UNIFORM, [250], 500, False, id="a larger share"),
        pytest.param(UNIFORM, [250], 50, False, id="a smaller share, with enough capacity"),
        pytest.param(UNIFORM, [], 40, False, id="below the smallest share"),
        pytest.param(Sharing(), [250], 500, True, id="different shares without uniform sharing"),
        pytest.param(
            Sharing(Level.PROCESS, 250, 250), [250], 500, False, id="larger than the fixed share"
        ),
        pytest.param(replace(UNIFORM, is_paused=True), [250], 250, False, id="sharing is paused"),
    ],
)
def test_allowed_share_depends_on_the_sharing_and_the_shares_in_use(
    sharing: Sharing, shares: list[int], share: int, is_allowed: bool
) -> None:
    assert sharing.allows(share, sharing.in_force(shares)) is is_allowed
