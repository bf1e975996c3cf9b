"""Names of agents, devices and images."""

from __future__ import annotations

import pytest

from bai_services.core.cluster.model import canonical_image, check_agent_id, check_device
from bai_services.core.errors import InvalidRequest


@pytest.mark.parametrize(
    "name, canonical",
    [
        pytest.param("python", "python:latest", id="without a tag"),
        pytest.param("team/python:3.12", "team/python:3.12", id="with a path and a tag"),
        pytest.param(
            "reg.example.org:5000/a/b", "reg.example.org:5000/a/b:latest", id="registry with a port"
        ),
        pytest.param("localhost/x__y-z.1:T_1", "localhost/x__y-z.1:T_1", id="all separators"),
    ],
)
def test_image_name_without_a_tag_gets_the_default_tag(name: str, canonical: str) -> None:
    assert canonical_image(name) == canonical
    assert canonical_image(canonical) == canonical


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("Python", id="upper case"),
        pytest.param("a b", id="space"),
        pytest.param("../etc", id="relative path"),
        pytest.param("a:b:c", id="two tags"),
        pytest.param("a//b", id="empty component"),
        pytest.param("a:" + "t" * 129, id="tag too long"),
        pytest.param("a" * 250, id="too long with the default tag"),
        pytest.param("-rm", id="looks like an option"),
        pytest.param("a\n", id="line break"),
    ],
)
def test_invalid_image_name_is_rejected(name: str) -> None:
    with pytest.raises(InvalidRequest):
        canonical_image(name)


@pytest.mark.parametrize("agent_id", ["a", "Node-1.example.org", "x" * 64])
def test_valid_agent_id_is_unchanged(agent_id: str) -> None:
    assert check_agent_id(agent_id) == agent_id


@pytest.mark.parametrize("agent_id", ["", "-a", "a-", "a/b", "a..b", "x" * 65, "é", "a\n"])
def test_invalid_agent_id_is_rejected(agent_id: str) -> None:
    with pytest.raises(InvalidRequest):
        check_agent_id(agent_id)


def test_invalid_device_id_or_family_is_rejected() -> None:
    check_device("GPU-4b1e", "cuda")
    for device_id, family in (("", "cuda"), ("a b", "cuda"), ("x" * 129, "cuda"), ("a", "CUDA")):
        with pytest.raises(InvalidRequest):
            check_device(device_id, family)
