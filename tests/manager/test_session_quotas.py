"""The displayed quotas agree with the checks of new sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.device_sharing import Sharing
from bai_services.core.cluster.devices import Device
from bai_services.core.resources import UNLIMITED, ResourceSlots, parse_amount, percent_of
from bai_services.core.scheduling.caps import Scope, ScopeCaps, violations
from bai_services.core.scheduling.placement import AgentState
from bai_services.db.sessions.requests import AdmissionFacts, UsedAmount
from bai_services.manager.sessions.requests.quotas import own_resources, scope_quotas

KEYPAIR, PROJECT = Scope("keypair", "K"), Scope("project", "p1")
SLOTS = ("cpu", "mem")
AGENT = AgentState("a1", "main", "x86_64", "process", {"cpu": 4000, "mem": 2**30})


def facts(*caps: ScopeCaps, usage: dict[Scope, dict[str, int]] | None = None) -> AdmissionFacts:
    return AdmissionFacts(
        (KEYPAIR, PROJECT), {one.scope: one for one in caps}, usage or {}, (AGENT,)
    )


def test_forbidden_slot_of_a_closed_policy_is_displayed_as_limiting() -> None:
    closed = ScopeCaps(KEYPAIR, "K", {"cpu": 4000}, is_closed=True)
    project = ScopeCaps(PROJECT, "p1", {"cuda.shares": 100})
    keypair_quota, project_quota = scope_quotas(facts(closed, project))
    shown = {slot.slot: (slot.limit, slot.is_limiting) for slot in keypair_quota.slots}
    assert shown == {
        "cpu": ("4", True),
        # The slot is listed because the project limits it. It is 0 because the keypair's policy is
        # closed.
        "cuda.shares": ("0", True),
        "mem": ("0", True),  # listed because the agent has this slot
        "sessions": (None, False),
    }
    assert not any(slot.is_limiting for slot in project_quota.slots)


def test_forbidden_slot_of_a_drained_agent_is_displayed() -> None:
    drained = replace(AGENT, devices=(device("g0"),), is_schedulable=False)
    closed = ScopeCaps(KEYPAIR, "K", {"cpu": 4000}, is_closed=True)
    (quota,) = scope_quotas(replace(facts(closed), agents=(drained,)))
    shown = {slot.slot: slot.limit for slot in quota.slots}
    assert shown == {"cpu": "4", "cuda.shares": "0", "mem": "0", "sessions": None}


def test_percentage_of_a_limit_is_100_only_if_nothing_is_left() -> None:
    assert [percent_of(used, 1000) for used in (0, 9, 10, 999, 1000, 1001)] == [
        0,
        0,
        1,
        99,
        100,
        100,
    ]
    assert percent_of(0, 0) == 100


AMOUNTS = st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 3).map(lambda n: n * 1000))
LIMITS = st.dictionaries(st.sampled_from(SLOTS), st.sampled_from([UNLIMITED, 0, 1000, 2000, 3000]))


@given(LIMITS, LIMITS, st.booleans(), AMOUNTS, AMOUNTS, st.sampled_from(SLOTS))
def test_request_is_accepted_if_and_only_if_it_fits_the_displayed_remainders(
    of_keypair: dict[str, int],
    of_project: dict[str, int],
    is_closed: bool,
    used_by_keypair: dict[str, int],
    used_by_project: dict[str, int],
    slot: str,
) -> None:
    caps = (
        ScopeCaps(KEYPAIR, "K", of_keypair, is_closed=is_closed),
        ScopeCaps(PROJECT, "p1", of_project),
    )
    found = facts(*caps, usage={KEYPAIR: used_by_keypair, PROJECT: used_by_project})
    requested = ResourceSlots({slot: 1000})
    remainders = [
        (parse_amount(slot, quota.left), quota.is_limiting)
        for scope in scope_quotas(found)
        for quota in scope.slots
        if quota.slot == slot and quota.left is not None
    ]
    is_accepted = all(left >= 1000 for left, _ in remainders)
    assert is_accepted is not bool(violations(caps, requested, found.usage))
    assert not remainders or any(is_limiting for _, is_limiting in remainders)


def device(name: str, *, used: int = 0, is_shared: bool = True, slot: str = "") -> Device:
    sharing = Sharing() if is_shared else Sharing(most=0)
    return Device(name, "cuda", used=used, sharing=sharing, slot=slot)


def own(
    agents: Sequence[AgentState], *used: tuple[str | None, str, int]
) -> dict[str, tuple[str, str, str]]:
    """Return used, free and total amount of each slot for a user who has no quotas."""
    resources = own_resources(agents, [UsedAmount(*one) for one in used], facts())
    return {one.slot: (one.used, one.free, one.total) for one in resources}


def test_own_usage_of_a_device_is_counted_in_one_slot() -> None:
    devices = (
        device("shared", used=250),
        device("whole", used=1000),
        device("fixed", used=1000, is_shared=False),
        device("idle", is_shared=False),
        device("mig", used=1000, slot="cuda.mig-1g.10gb"),
    )
    found = own(
        [replace(AGENT, devices=devices)],
        ("shared", "cuda.shares", 250),
        ("whole", "cuda.device", 1),
        ("fixed", "cuda.device", 1),
        ("mig", "cuda.mig-1g.10gb", 1),
    )
    assert found == {
        "cpu": ("0", "4", "4"),
        "mem": ("0", "1g", "1g"),
        "cuda.shares": ("1.25", "0.75", "2"),
        "cuda.device": ("1", "1", "2"),
        "cuda.mig-1g.10gb": ("1", "0", "1"),
    }


def test_partly_used_device_that_may_no_longer_be_shared_counts_as_a_whole_device() -> None:
    agent = replace(AGENT, devices=(device("g0", used=250, is_shared=False),))
    found = own([agent], ("g0", "cuda.shares", 250))
    assert (found["cuda.device"], "cuda.shares" in found) == (("1", "0", "1"), False)


@pytest.mark.parametrize("state", ["is_alive", "is_schedulable"])
def test_own_usage_on_agents_that_accept_no_sessions_is_shown(state: str) -> None:
    closed = replace(AGENT, id="a2", devices=(device("g0", used=250),), used={"cpu": 1000})
    closed = replace(closed, **{state: False})
    used = ((None, "cpu", 1000), ("g0", "cuda.shares", 250), ("removed", "rocm.device", 1))
    assert own([AGENT, closed], *used) == {
        "cpu": ("1", "4", "5"),
        "mem": ("0", "1g", "1g"),
        "cuda.shares": ("0.25", "0", "0.25"),
        "rocm.device": ("1", "0", "1"),
    }
    assert set(own([closed], *used)) == {"cpu", "cuda.shares", "rocm.device"}
    assert own([closed]) == {}
