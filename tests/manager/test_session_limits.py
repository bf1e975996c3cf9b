"""The largest amount of each slot with which a session could start now (``now``), and whether a
session with a preset could start now (``allocatable``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.cluster.devices import Device
from bai_services.core.resources import ResourceSlots
from bai_services.core.scheduling.caps import Scope, ScopeCaps
from bai_services.core.scheduling.placement import AgentState
from bai_services.db.sessions.requests import AdmissionFacts, GroupFacts, ImageFacts, PresetFacts
from bai_services.manager.cluster.agent_capacity import AgentCapacity
from bai_services.manager.sessions.requests.options import StartFacts, is_allocatable, limits

GIB = 2**30
USER, KEYPAIR = Scope("user", "u1"), Scope("keypair", "K")
GROUP = GroupFacts("main", "", "process", True, ["interactive"])
NOTHING = {"cpu": "0", "mem": "0", "cuda.device": "0", "cuda.shares": "0"}
FREE = {"cpu": "4", "mem": "8g", "cuda.device": "2", "cuda.shares": "2"}
UNIFORM = Sharing(Level.PROCESS, 50, 1000, is_uniform=True)


def agent(name: str = "a1", *, cpu: int = 0, mem: int = 0, devices: int = 2) -> AgentState:
    """Return an agent with 4 cores, 8 GiB and unused devices.

    ``cpu`` (millicores) and ``mem`` (bytes) are in use.
    """
    return AgentState(
        name,
        "main",
        "x86_64",
        "process",
        {"cpu": 4000, "mem": 8 * GIB},
        {"cpu": cpu, "mem": mem},
        tuple(Device(f"{name}-g{n}", "cuda") for n in range(devices)),
    )


def facts(
    *caps: ScopeCaps,
    usage: Mapping[str, int] | None = None,
    pending: Mapping[str, int] | None = None,
) -> AdmissionFacts:
    """Return the facts of a user; ``usage`` and ``pending`` are those of the keypair."""
    return AdmissionFacts(
        (KEYPAIR, USER),
        {one.scope: one for one in caps},
        {KEYPAIR: usage or {}},
        (agent(),),
        {KEYPAIR: pending or {}},
    )


def image(minimum: Mapping[str, str] | None = None, maximum: str = "") -> ImageFacts:
    most = {"cuda.shares": maximum} if maximum else {}
    slots = (ResourceSlots.parse(each) for each in (minimum or {}, most))
    return ImageFacts("i", "x86_64", *slots, labels={})


def start(found: AdmissionFacts | StartFacts, *agents: AgentState) -> StartFacts:
    if isinstance(found, StartFacts):
        return found
    return StartFacts(GROUP, found, AgentCapacity(agents or (agent(),)), [image()])


def now(found: AdmissionFacts | StartFacts, *agents: AgentState) -> dict[str, str]:
    return {slot: limit.now for slot, limit in limits(start(found, *agents)).items()}


def is_open(found: AdmissionFacts | StartFacts, **slots: str) -> bool:
    """Return whether a preset with these slots is allocatable."""
    preset = PresetFacts("p", "", ResourceSlots.parse(slots), None)
    return is_allocatable(preset, start(found))


def keypair(**caps: Any) -> ScopeCaps:
    return replace(ScopeCaps(KEYPAIR, "K"), **caps)


def test_without_limits_everything_that_is_free_is_available() -> None:
    assert (now(facts()), is_open(facts(), cpu="4")) == (FREE, True)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(facts(keypair(max_pending_sessions=0)), id="no pending sessions"),
        pytest.param(
            facts(ScopeCaps(USER, "ann", max_pending_sessions=0)),
            id="no pending sessions of the user",
        ),
        pytest.param(
            facts(keypair(max_pending_sessions=2), pending={"sessions": 2}),
            id="no more pending sessions",
        ),
        pytest.param(
            facts(keypair(max_pending_slots={"cpu": 1000}), pending={"cpu": 1000}),
            id="no more cores in pending sessions",
        ),
        pytest.param(facts(keypair(max_pending_slots={"mem": 0})), id="no pending memory"),
        pytest.param(facts(keypair(max_sessions=1), usage={"sessions": 1}), id="no more sessions"),
        pytest.param(facts(keypair(max_containers_per_session=0)), id="no containers"),
        pytest.param(facts(keypair(slots={"cpu": 2000}), usage={"cpu": 2000}), id="no more cores"),
        pytest.param(
            facts(keypair(slots={"cpu": 2000}, is_closed=True)), id="closed policy without memory"
        ),
        pytest.param(replace(start(facts()), is_keypair_active=False), id="inactive keypair"),
    ],
)
def test_nothing_is_available_if_every_request_is_rejected_or_delayed(
    found: AdmissionFacts | StartFacts,
) -> None:
    assert (now(found), is_open(found, cpu="1")) == (NOTHING, False)


@pytest.mark.parametrize(
    "full",
    [
        pytest.param(agent(cpu=4000), id="no free cores"),
        pytest.param(agent(mem=8 * GIB), id="no free memory"),
    ],
)
def test_devices_of_an_agent_without_cores_or_memory_are_not_available(full: AgentState) -> None:
    assert now(facts(), full) == NOTHING
    assert now(facts(), full, agent("a2", cpu=3000, devices=1)) == {
        "cpu": "1",
        "mem": "8g",
        "cuda.device": "1",
        "cuda.shares": "1",
    }


def test_amount_is_limited_by_the_pending_slots_that_are_left() -> None:
    found = facts(
        keypair(max_pending_slots={"cpu": 3000, "cuda.shares": 500, "mem": -1}),
        pending={"cpu": 1000, "cuda.shares": 250},
    )
    assert now(found) == {**FREE, "cpu": "2", "cuda.shares": "0.25"}
    assert is_open(found, cpu="2") and not is_open(found, cpu="2.001")


@pytest.mark.parametrize(
    ("quota", "devices", "expected"),
    [
        pytest.param(300, [(500, 500)], "0", id="less than the share in force"),
        pytest.param(700, [(500, 500)], "0.5", id="the share in force"),
        pytest.param(300, [(500, 500), (250, 250)], "0.25", id="a smaller share in force"),
        pytest.param(300, [(500, 500), (0, 0)], "0.3", id="an empty device"),
        pytest.param(305, [(0, 0)], "0.3", id="a multiple of the step"),
        pytest.param(40, [(0, 0)], "0", id="less than the smallest share"),
    ],
)
def test_available_share_respects_the_quota_and_the_shares_in_force(
    quota: int, devices: list[tuple[int, int]], expected: str
) -> None:
    gpus = tuple(
        Device(f"g{n}", "cuda", used=used, sharing=UNIFORM, share_in_force=share)
        for n, (used, share) in enumerate(devices)
    )
    found = facts(keypair(slots={"cuda.shares": quota}))
    assert now(found, replace(agent(), devices=gpus))["cuda.shares"] == expected


def test_preset_whose_shared_memory_exceeds_its_memory_is_not_allocatable() -> None:
    preset = PresetFacts("p", "", ResourceSlots(), 2 * GIB)  # the default memory is 1 GiB
    assert not is_allocatable(preset, start(facts()))


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        pytest.param([image()], "1", id="no minimum"),
        pytest.param(
            [image({"cpu": "2"})], "0", id="more cores than are free on the agent with devices"
        ),
        pytest.param([image({"cpu": "2"}), image({"cpu": "1"})], "1", id="another image"),
        pytest.param([image({"cpu": "1", "mem": "9g"})], "0", id="more memory than any agent has"),
        pytest.param([], "0", id="no image"),
    ],
)
def test_available_amounts_respect_the_minima_of_the_images(
    images: list[ImageFacts], expected: str
) -> None:
    agents = (agent(cpu=3000, devices=1), agent("a2", devices=0))
    found = replace(start(facts(), *agents), images=images)
    assert now(found)["cuda.shares"] == expected


def test_preset_must_fit_the_bounds_of_an_image() -> None:
    small, large = image({"cpu": "2"}, maximum="0.5"), image({"cpu": "3", "mem": "2g"})
    found = replace(start(facts()), images=[small, large])
    assert not is_open(found, cpu="1")
    assert is_open(found, cpu="2")
    assert not is_open(found, **{"cpu": "2", "cuda.shares": "1"})
    assert is_open(found, **{"cpu": "3", "cuda.shares": "1"})  # image's minimum of mem
    assert not is_open(found, **{"cpu": "3", "mem": "1g", "cuda.shares": "1"})


@pytest.mark.parametrize("other", [{"engine": "docker"}, {"architecture": "aarch64"}])
def test_agents_that_cannot_run_an_image_of_the_group_do_not_count(other: dict[str, Any]) -> None:
    assert now(facts(), replace(agent(), **other)) == NOTHING
    small = agent("a2", cpu=3000, mem=7 * GIB, devices=1)
    assert now(facts(), replace(agent(), **other), small) == {
        "cpu": "1",
        "mem": "1g",
        "cuda.device": "1",
        "cuda.shares": "1",
    }
