"""Names, environment and resources of sessions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.resources import ResourceSlots
from bai_services.core.sessions.rules import (
    check_environ,
    check_resources,
    check_session_name,
    fill_slots,
    hub_server_name,
    session_name_from,
)

SESSION_ID = "0a1b2c3d-0000-4000-8000-000000000000"
HUB_NAME = re.compile(r"[a-z](?:-?[a-z0-9])*")


@pytest.mark.parametrize("name", ["lab1", "My_Sess.v-2", "_ab_", "x" * 64])
def test_valid_session_name_is_unchanged(name: str) -> None:
    assert check_session_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "abc", "x" * 65, "-lab1", "lab1-", "lab 1", "läb1", "lab/1", "lab1\n", "../etc"]
)
def test_invalid_session_name_is_rejected(name: str) -> None:
    with pytest.raises(
        InvalidRequest, match="name of a session cannot be empty|cannot be the name of a session"
    ):
        check_session_name(name)


@given(st.text(max_size=100))
def test_name_of_a_hub_server_is_accepted_or_rejected_with_a_valid_suggestion(text: str) -> None:
    try:
        name = session_name_from(text)
        assert name in (text, f"session-{text}")
    except InvalidRequest as error:
        name = error.details["suggestion"]
        assert name in error.message
    assert check_session_name(name) == name


def test_invalid_name_is_rejected_and_a_short_name_of_a_server_is_extended() -> None:
    for check in (check_session_name, session_name_from):
        with pytest.raises(InvalidRequest, match="for example bad-name"):
            check("bad name!")
    with pytest.raises(InvalidRequest, match="^'a b' cannot be"):
        session_name_from("a b")
    assert session_name_from("gpu") == "session-gpu"


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{2,60}[A-Za-z0-9_]", fullmatch=True))
def test_hub_server_name_is_valid_for_the_hub(name: str) -> None:
    server = hub_server_name(name, SESSION_ID)
    assert HUB_NAME.fullmatch(server), server
    assert len(server) <= 30
    assert server.endswith("-0a1b2c")


@pytest.mark.parametrize(
    "environ, part",
    [
        pytest.param({"1A": "x"}, "cannot be the name", id="leading digit"),
        pytest.param({"A-B": "x"}, "cannot be the name", id="hyphen"),
        pytest.param({"A" * 129: "x"}, "cannot be the name", id="too long"),
        pytest.param({"BAI_SESSION_ID": "x"}, "reserved", id="reserved by bai-hub"),
        pytest.param({"JUPYTERHUB_API_TOKEN": "x"}, "reserved", id="reserved by the Hub"),
        pytest.param({"NVIDIA_VISIBLE_DEVICES": "all"}, "reserved", id="device variables"),
        pytest.param({"A": "\0"}, "NUL", id="NUL"),
        pytest.param({"A": "x" * 40_000}, "more than 32768", id="value too long"),
        pytest.param({f"A{i}": "" for i in range(101)}, "at most 100", id="too many variables"),
        pytest.param(
            {f"A{i}": "x" * 30_000 for i in range(5)},
            "at most 131072",
            id="variables too large in total",
        ),
    ],
)
def test_invalid_environment_is_rejected(environ: dict[str, str], part: str) -> None:
    with pytest.raises(InvalidRequest, match=part):
        check_environ(environ)


def slots(**texts: str) -> ResourceSlots:
    return ResourceSlots.parse({name.replace("_", "."): text for name, text in texts.items()})


@pytest.mark.parametrize(
    "requested, preset, minimum, expected",
    [
        pytest.param({}, {}, {}, {"cpu": "1", "mem": "1g"}, id="defaults"),
        pytest.param({}, {}, {"mem": "2g"}, {"cpu": "1", "mem": "2g"}, id="the image's minimum"),
        pytest.param(
            {"cpu": "2"},
            {"cpu": "4", "mem": "8g"},
            {},
            {"cpu": "2", "mem": "8g"},
            id="request overrides preset",
        ),
        pytest.param(
            {"cuda_shares": "0.5"},
            {"cpu": "1", "mem": "1g", "cuda_device": "1"},
            {},
            {"cpu": "1", "mem": "1g", "cuda_shares": "0.5"},
            id="requested shares replace the preset's whole device",
        ),
    ],
)
def test_missing_resources_come_from_preset_image_or_defaults(
    requested: dict[str, str],
    preset: dict[str, str],
    minimum: dict[str, str],
    expected: dict[str, str],
) -> None:
    filled = fill_slots(slots(**requested), slots(**preset), slots(**minimum))
    assert filled == slots(**{k.replace(".", "_"): v for k, v in expected.items()})


@pytest.mark.parametrize(
    "given_slots, shared, part",
    [
        pytest.param(
            {"cpu": "1", "mem": "1g"}, 2**26, "needs at least 2g", id="below the image's minimum"
        ),
        pytest.param({"cpu": "9", "mem": "4g"}, 2**26, "at most 8", id="above the image's maximum"),
        pytest.param(
            {"cpu": "1", "mem": "2g"},
            2**31,
            "must be less than",
            id="shared memory equal to memory",
        ),
    ],
)
def test_invalid_resources_are_rejected(
    given_slots: dict[str, str], shared: int, part: str
) -> None:
    with pytest.raises(InvalidRequest, match=part):
        check_resources(slots(**given_slots), shared, "python", (slots(mem="2g"), slots(cpu="8")))
