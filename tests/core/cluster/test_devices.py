"""Amounts on devices: even splits, the largest available amount, and rejected requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.device_sharing import Level, Sharing
from bai_services.core.cluster.devices import (
    Device,
    check_exclusive,
    check_unique,
    max_amount,
    split_shares,
)
from bai_services.core.errors import InvalidRequest


def gpus(*used: int | None) -> list[Device]:
    """Return devices g0, g1 …, each with the used amount in thousandths; None: unhealthy device."""
    return [
        Device(f"g{i}", "cuda", used=n or 0, is_healthy=n is not None) for i, n in enumerate(used)
    ]


def test_two_slots_of_one_family_are_rejected() -> None:
    check_exclusive({"cpu": 1, "cuda.shares": 500, "rocm.device": 1})
    with pytest.raises(InvalidRequest, match=r"cuda.device and cuda.shares are mutually exclusive"):
        check_exclusive({"cuda.shares": 500, "cuda.device": 1})


shares = st.integers(5, 400).map(lambda n: n * 10)


@given(shares)
def test_share_is_split_exactly_and_evenly_over_the_fewest_devices(amount: int) -> None:
    parts = split_shares(amount)
    assert sum(parts) == amount
    assert max(parts) - min(parts) <= 10
    assert len(parts) == max(1, -(-amount // 1000))
    assert max(parts) <= 1000


@pytest.mark.parametrize(
    "devices, slot, most",
    [
        pytest.param(gpus(600, 500), "cuda.shares", 500, id="share on one device"),
        pytest.param(
            gpus(0, 0, 300), "cuda.shares", 2120, id="share in equal parts, rounded to steps"
        ),
        pytest.param(gpus(0, 960), "cuda.shares", 1000, id="no part below the smallest share"),
        pytest.param(gpus(None, 700), "cuda.shares", 300, id="only healthy devices"),
        pytest.param(gpus(0, 10, 0, None), "cuda.device", 2, id="whole devices must be unused"),
        pytest.param(gpus(0), "rocm.device", 0, id="no device of the family"),
        pytest.param(gpus(0), "cuda.memory", 0, id="unknown slot"),
    ],
)
def test_max_amount_is_the_largest_available_amount_of_a_slot(
    devices: list[Device], slot: str, most: int
) -> None:
    assert max_amount(devices, slot) == most


@pytest.mark.parametrize(
    ("slot", "limit", "most"),
    [
        ("cuda.shares", 5000, 1400),  # on both devices
        ("cuda.shares", 1105, 1100),  # a multiple of the step
        ("cuda.shares", 1000, 700),  # not split
        ("cuda.shares", 605, 600),
        ("cuda.shares", 40, 0),  # below the smallest share
        ("cuda.device", 1, 0),
    ],
)
def test_max_amount_is_bounded(slot: str, limit: int, most: int) -> None:
    assert max_amount(gpus(300, 300), slot, limit) == most


def sharing_devices(*amounts: tuple[int, int], used: int = 0) -> list[Device]:
    """Return devices g0, g1 …; each pair has the smallest and largest share in thousandths."""
    return [
        Device(f"g{i}", "cuda", used=used, sharing=Sharing(Level.PROCESS, *of))
        for i, of in enumerate(amounts)
    ]


@pytest.mark.parametrize(
    "devices, slot, most",
    [
        pytest.param(
            sharing_devices((250, 250)), "cuda.shares", 250, id="device with a fixed share"
        ),
        pytest.param(
            sharing_devices((250, 250), (500, 500)),
            "cuda.shares",
            500,
            id="share cannot be split over devices",
        ),
        pytest.param(
            sharing_devices((250, 250), used=800), "cuda.shares", 0, id="too little free capacity"
        ),
        pytest.param(sharing_devices((50, 0)), "cuda.shares", 0, id="device that offers no shares"),
        pytest.param(
            sharing_devices((50, 0)), "cuda.device", 1, id="whole device that offers no shares"
        ),
    ],
)
def test_max_amount_respects_restricted_sharing(
    devices: list[Device], slot: str, most: int
) -> None:
    assert max_amount(devices, slot) == most


def test_fully_available_device_ignores_usage_health_and_pause() -> None:
    device = Device("g0", "cuda", used=900, is_healthy=False, sharing=Sharing(is_paused=True))
    assert max_amount([device], "cuda.shares") == 0
    assert max_amount([device.fully_available()], "cuda.shares") == 1000


def test_more_than_one_mig_instance_is_rejected() -> None:
    check_unique({"cuda.mig-1g.10gb": 1, "cuda.device": 4})
    with pytest.raises(InvalidRequest, match="one MIG instance"):
        check_unique({"cuda.mig-1g.10gb": 2})


def test_mig_instances_have_their_own_slot() -> None:
    slot = "cuda.mig-1g.10gb"
    devices = [Device("m0", "cuda", slot=slot), Device("m1", "cuda", slot=slot, used=1000)]
    assert max_amount(devices, slot) == 1
    assert max_amount(devices, "cuda.shares") == max_amount(devices, "cuda.device") == 0
    with pytest.raises(
        InvalidRequest, match=r"cuda.mig-1g.10gb and cuda.shares are mutually exclusive"
    ):
        check_exclusive({slot: 1, "cuda.shares": 500})
    with pytest.raises(InvalidRequest, match="mutually exclusive"):
        check_exclusive({slot: 1, "cuda.mig-2g.20gb": 1})
