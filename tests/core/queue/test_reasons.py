"""Reasons why sessions remain pending, and which sessions may overtake them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bai_services.core.coded_text import TextTemplate
from bai_services.core.scheduling.caps import SESSIONS, Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.estimates.explainer import explain_one
from bai_services.core.scheduling.placement import Designation
from bai_services.core.scheduling.queue import (
    Backfill,
    Changes,
    GroupState,
    Queue,
    Snapshot,
    run_pass,
)

from .factories import (
    ANN,
    BOB,
    GIB,
    MAIN,
    NOW,
    WAITS_FOR_S0,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
    started_sessions,
    with_usage,
)

KEYPAIR = Scope(ScopeKind.KEYPAIR, "AKIA")
LAB = Scope(ScopeKind.PROJECT, "lab")
EAST = Scope(ScopeKind.DOMAIN, "east")
FULL = agent(used={"cpu": 8000})
WITH_FOLDER = replace(request(), storage_hosts=("nas",))
STRICT = {"backfill": Backfill.OFF}


def capped(scope: Scope, **caps: Any) -> Snapshot:
    """Return a snapshot with two pending sessions (2 cores each) of a scope that has these caps."""
    pending = [pending_session(n, scopes=(scope,), wanted=request(cpu="2")) for n in (1, 2)]
    return snapshot(pending, [agent()], caps={scope: ScopeCaps(scope, scope.id, **caps)})


@pytest.mark.parametrize(
    "world, last, check, part",
    [
        pytest.param(
            snapshot(
                [pending_session(1, blocked_reason=TextTemplate.USER_INACTIVE.text(name="ann"))],
                [agent()],
            ),
            "s1",
            "account",
            "account ann is not active",
            id="inactive account of the owner",
        ),
        pytest.param(
            snapshot(
                [
                    pending_session(
                        1,
                        blocked_reason=TextTemplate.BUDGET_SPENT.text(name="lab", amount="5 EUR"),
                    )
                ],
                [agent()],
            ),
            "s1",
            "budget",
            "the budget of project lab (5 EUR) is spent",
            id="spent budget of the project",
        ),
        pytest.param(
            snapshot([pending_session(1)], [agent()], group={"is_active": False}),
            "s1",
            "resource-group",
            "resource group main is not active",
            id="inactive resource group",
        ),
        pytest.param(
            snapshot(
                [pending_session(1, unmet_dependencies=WAITS_FOR_S0)],
                [agent()],
            ),
            "s1",
            "dependencies",
            "waits for the success of s0",
            id="unfinished dependency",
        ),
        pytest.param(
            snapshot([pending_session(1, not_before=NOW + timedelta(hours=1))], [agent()]),
            "s1",
            "not-before",
            "does not start before 2030-01-01T13:00:00+00:00",
            id="start time in the future",
        ),
        pytest.param(
            capped(ANN, slots={"cpu": 3000}),
            "s2",
            "policy",
            "cpu=2 requested, but user ann may have at most cpu=3, of which 1 is left",
            id="slot cap of the user",
        ),
        pytest.param(
            capped(LAB, slots={"mem": GIB}), "s2", "policy", "project lab", id="cap of the project"
        ),
        pytest.param(
            capped(EAST, slots={"cpu": 2000}), "s2", "policy", "domain east", id="cap of the domain"
        ),
        pytest.param(
            capped(KEYPAIR, max_sessions=1),
            "s2",
            "policy",
            "keypair AKIA may have at most 1 running session: 1 running, 0 left, 1 requested",
            id="session cap of the keypair",
        ),
        pytest.param(
            capped(MAIN, slots={"cpu": 3999}),
            "s2",
            "policy",
            "resource group main may have at most cpu=3.999",
            id="slot cap of the resource group",
        ),
        pytest.param(
            capped(KEYPAIR, slots={"cpu": 9000}, is_closed=True),
            "s1",
            "policy",
            "at most mem=0, of which 0 is left",
            id="closed policy: a slot that the policy does not list",
        ),
        pytest.param(
            snapshot([pending_session(1)], []),
            "s1",
            "resources",
            "resource group main has no agent",
            id="group without agents",
        ),
        pytest.param(
            snapshot([pending_session(1, wanted=request(cpu="9"))], [agent()]),
            "s1",
            "resources",
            "cpu=9 requested, but at most 8 is free on one agent, even without",
            id="request larger than each agent",
        ),
        pytest.param(
            snapshot(
                [pending_session(1, wanted=request(mem="100g"))],
                [agent(capacity={"cpu": 8000, "mem": 24684092 * 2**10})],
            ),
            "s1",
            "resources",
            "mem=100g requested, but at most 24105m is free on one agent, even without",
            id="free memory: rounded down to MiB",
        ),
        pytest.param(
            snapshot([pending_session(1)], [FULL]),
            "s1",
            "resources",
            "cpu=1 requested, but at most 0 is free on one agent",
            id="no free capacity",
        ),
        pytest.param(
            snapshot(
                [pending_session(1, wanted=WITH_FOLDER)],
                [agent("a", unusable_hosts=("nas", "old")), agent("b", is_alive=False)],
            ),
            "s1",
            "resources",
            "none of the 2 agents of resource group main can run the session: 1 not alive, 0 not "
            "schedulable, 0 with an architecture other than x86_64 or another engine, 1 on which "
            "storage host nas does not work",
            id="storage of its folder works on no agent",
        ),
        pytest.param(
            snapshot(
                [pending_session(1, wanted=WITH_FOLDER)],
                [FULL, agent("b", unusable_hosts=("nas",))],
            ),
            "s1",
            "resources",
            "cpu=1 requested, but at most 0 is free on one agent; 1 other agent cannot run the "
            "session, because storage host nas does not work there",
            id="storage of its folder works only on agents without free capacity",
        ),
        pytest.param(
            snapshot(
                [pending_session(1)],
                [
                    agent("a", is_network_full=True),
                    agent("b", is_schedulable=False, is_network_full=True),
                ],
            ),
            "s1",
            "resources",
            "none of the 2 agents of resource group main can run the session: 0 not alive, 1 not "
            "schedulable, 0 with an architecture other than x86_64 or another engine, 1 without a "
            "free subnet for networks of sessions",
            id="no subnet is free",
        ),
        pytest.param(
            snapshot([pending_session(1)], [FULL, agent("b", is_network_full=True)]),
            "s1",
            "resources",
            "cpu=1 requested, but at most 0 is free on one agent; 1 other agent cannot run the "
            "session, because no subnet for networks of sessions is free there",
            id="a subnet is free only on agents without free capacity",
        ),
        pytest.param(
            snapshot(
                [pending_session(1, wanted=request(cpu="8")), pending_session(2)],
                [agent(used={"cpu": 1000})],
                running=[running("r", BOB, "a", slots())],
                group=STRICT,
            ),
            "s2",
            "order",
            "waits for its turn: an earlier session of resource group main waits for capacity",
            id="backfill off: an earlier session waits for capacity",
        ),
        pytest.param(
            snapshot(
                [pending_session(1, wanted=request(cpu="8")), pending_session(2)],
                [agent(used={"cpu": 1000})],
                running=[running("r", BOB, "a", slots(), ends_at=NOW + timedelta(hours=1))],
            ),
            "s2",
            "reservation",
            "would delay an earlier session, for which capacity is reserved from 2030-01-01T13"
            ":00:00",
            id="reserving: fits now, but could run beyond the reserved start",
        ),
    ],
)  # fmt: skip
def test_pending_session_has_the_expected_reason(
    world: Snapshot, last: str, check: str, part: str
) -> None:
    result = run_pass(world)
    reasons = result.reasons[last]
    assert [reason["check"] for reason in reasons] == [check]
    assert part in reasons[0]["message"]
    assert not reasons[0]["passed"]
    assert last not in started_sessions(result)


def test_sessions_start_as_soon_as_the_storage_of_their_folders_works() -> None:
    failing = agent(unusable_hosts=("nas",))
    sessions = [pending_session(1, wanted=WITH_FOLDER), pending_session(2)]
    queue = Queue(snapshot(sessions, [failing]))
    # The session that cannot start keeps no capacity from the others.
    assert started_sessions(queue.run(NOW)) == ["s2"]
    queue.apply(Changes(agents=[replace(failing, used={"cpu": 1000, "mem": GIB})]))
    assert started_sessions(queue.run(NOW)) == []
    works = replace(failing, used={"cpu": 1000, "mem": GIB}, unusable_hosts=())
    queue.apply(Changes(agents=[works]))
    assert started_sessions(queue.run(NOW)) == ["s1"]


def test_sessions_start_as_soon_as_a_subnet_is_free() -> None:
    full = agent(is_network_full=True)
    queue = Queue(snapshot([pending_session(1)], [full]))
    assert started_sessions(queue.run(NOW)) == []
    queue.apply(Changes(agents=[replace(full, is_network_full=False)]))
    assert started_sessions(queue.run(NOW)) == ["s1"]


def test_reason_in_a_group_without_agents_does_not_mention_other_sessions() -> None:
    (reason,) = run_pass(snapshot([pending_session(1)], [])).reasons["s1"]
    assert reason["message"] == "resource group main has no agent"


def test_reasons_contain_all_exceeded_caps_with_numbers() -> None:
    caps = {
        ANN: ScopeCaps(ANN, "ann", {"cpu": 1000, "mem": GIB // 2}),
        LAB: ScopeCaps(LAB, "lab", max_sessions=0),
    }
    pending = [pending_session(1, scopes=(LAB, ANN), wanted=request(cpu="2"))]
    result = run_pass(snapshot(pending, [agent()], caps=caps, usage={ANN: {"cpu": 500}}))
    exceeded = [
        (r["scope"], r["slot"], r["asked"], r["limit"], r["used"], r["left"])
        for r in result.reasons["s1"]
    ]
    assert exceeded == [
        ("project", SESSIONS, "1", "0", "0", "0"),
        ("user", "cpu", "2", "1", "0.5", "0.5"),
        ("user", "mem", "1g", "512m", "0", "512m"),
    ]


def test_session_over_its_cap_is_overtaken_in_every_backfill_mode() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", max_sessions=1)}
    for mode in Backfill:
        world = snapshot(
            [pending_session(1), pending_session(2), pending_session(3, BOB)],
            [agent()],
            caps=caps,
            group={"backfill": mode},
        )
        assert started_sessions(run_pass(world)) == ["s1", "s3"]


def test_caps_apply_across_resource_groups() -> None:
    caps = {ANN: ScopeCaps(ANN, "ann", {"cpu": 3000})}
    pending = [pending_session(n, wanted=request("main" if n % 2 else "side")) for n in range(1, 7)]
    agents = [agent(), agent("b", resource_group="side")]
    result = run_pass(snapshot(pending, agents, caps=caps))
    assert len(result.decisions) == 3


def test_session_blocked_by_a_start_in_another_group_is_overtaken() -> None:
    """s1 does not fit in group main. Then s3 starts in group side and exhausts the owner's cap.

    Since s1 cannot start now because of the cap, s2 may overtake it, although backfill is off.
    """
    caps = {ANN: ScopeCaps(ANN, "ann", max_sessions=1)}
    blocker = running("r", BOB, "a", slots(cpu="4"), ends_at=NOW + timedelta(hours=1))
    pending = [
        pending_session(1, wanted=request(cpu="8")),
        pending_session(2, BOB),
        pending_session(3, wanted=request("side")),
    ]
    agents = [with_usage(agent(), slots(cpu="4")), agent("b", resource_group="side")]
    sides = {"side": GroupState("side")}
    world = snapshot(pending, agents, running=[blocker], caps=caps, group=STRICT, groups=sides)
    assert started_sessions(run_pass(world)) == ["s3", "s2"]


def test_cluster_session_is_charged_for_all_kernels() -> None:
    wanted = replace(request(cpu="2"), kernels=3)
    caps = {ANN: ScopeCaps(ANN, "ann", {"cpu": 5000})}
    result = run_pass(snapshot([pending_session(1, wanted=wanted)], [agent()], caps=caps))
    assert result.reasons["s1"][0]["asked"] == "6"


@pytest.mark.parametrize(
    "mode, expected",
    [
        pytest.param(
            Backfill.OFF, ["s1"], id="off: no session overtakes a session that does not fit"
        ),
        pytest.param(
            Backfill.AGGRESSIVE, ["s1", "s3", "s4"], id="aggressive: all sessions that fit"
        ),
        pytest.param(
            Backfill.RESERVING,
            ["s1", "s4"],
            id="reserving: only the session that ends before the reserved start",
        ),
    ],
)
def test_backfill_mode_decides_which_sessions_overtake(mode: Backfill, expected: list[str]) -> None:
    hour = timedelta(hours=1)
    blocker = running("r", BOB, "a", slots(cpu="4"), ends_at=NOW + hour)
    pending = [
        pending_session(1, wanted=request(cpu="2"), max_run_seconds=1800),
        pending_session(2, wanted=request(cpu="8"), max_run_seconds=60),
        pending_session(3, max_run_seconds=7200),
        pending_session(4, max_run_seconds=600),
    ]
    world = snapshot(
        pending, [with_usage(agent(), slots(cpu="4"))], running=[blocker], group={"backfill": mode}
    )
    assert started_sessions(run_pass(world)) == expected


def test_session_that_no_agent_can_run_does_not_block_others() -> None:
    base = request()
    designated = type(base)(
        base.slots,
        "main",
        "x86_64",
        designated_agents=("b",),
        designation=Designation.STRICT,
    )
    for mode in Backfill:
        pending = [
            pending_session(1, wanted=request(cpu="99")),
            pending_session(2, wanted=designated),
            pending_session(3),
        ]
        agents = [agent(), agent("b", is_schedulable=False)]
        world = snapshot(pending, agents, group={"backfill": mode})
        assert started_sessions(run_pass(world)) == ["s3"]


def test_quota_of_a_reserved_session_is_withheld_from_others() -> None:
    """s2 remains pending: its start would exhaust the session cap of ANN, which s1 needs."""
    caps = {ANN: ScopeCaps(ANN, "ann", max_sessions=1)}
    blocker = running("r", BOB, "a", slots(cpu="4"), ends_at=NOW + timedelta(hours=1))
    pending = [
        pending_session(1, wanted=request(cpu="8")),
        pending_session(2, max_run_seconds=60),
        pending_session(3, BOB, max_run_seconds=60),
    ]
    world = snapshot(pending, [with_usage(agent(), slots(cpu="4"))], running=[blocker], caps=caps)
    queue = Queue(world)
    result = queue.run(NOW)
    assert started_sessions(result) == ["s3"]
    assert result.reservations[0].session_id == "s1"
    assert queue.quotas.used(ANN) == {}
    # A session of ANN in another group also remains pending.
    queue.apply(
        Changes(
            pending=[pending_session(4, wanted=request("side"))],
            agents=[agent("b", resource_group="side")],
        )
    )
    assert started_sessions(queue.run(NOW)) == []


def test_sessions_of_one_shape_share_their_reasons() -> None:
    result = run_pass(snapshot([pending_session(n) for n in range(1, 9)], [FULL]))
    assert len({id(reasons) for reasons in result.reasons.values()}) == 1
    assert len(result.reasons) == 8


def test_session_that_is_not_pending_has_no_explanation() -> None:
    queue = Queue(snapshot([pending_session(1)], [agent()]))
    result = queue.run(NOW)
    assert dict(result.reasons) == {}
    assert explain_one(queue, "s1") is None
