"""Names and subnets of Docker networks."""

from __future__ import annotations

from ipaddress import IPv4Network
from itertools import islice

import pytest

from bai_services.agent.docker.networks import free_subnets, network_name, read_pool
from bai_services.core import errors


def test_free_subnets_do_not_overlap_used_ones() -> None:
    pool = read_pool("10.213.0.0/16", 26)
    used = [IPv4Network("10.213.0.0/25"), IPv4Network("172.17.0.0/16")]
    assert [str(s) for s in islice(free_subnets(pool, 26, used), 2)] == [
        "10.213.0.128/26",
        "10.213.0.192/26",
    ]
    assert len(list(free_subnets(pool, 26, []))) == 1024
    assert list(free_subnets(pool, 26, [IPv4Network("10.0.0.0/8")])) == []


@pytest.mark.parametrize("text", ["10.213.0.1/16", "x", "10.0.0.0/28", "::/64"])
def test_invalid_network_pool_is_rejected(text: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="BAI_AGENT_NETWORK_POOL"):
        read_pool(text, 26)


def test_network_name_depends_on_user_and_agent() -> None:
    assert network_name("ann.b_c-d", "m1").startswith("bai-u-ann.b_c-d-")
    # If two agents share an engine, their networks for the same user name differ.
    assert network_name("ann", "m1") != network_name("ann", "m2")
    for user in ("../x", "", "a b", "x" * 65):
        with pytest.raises(errors.InvalidRequest):
            network_name(user, "m1")
