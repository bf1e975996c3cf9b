"""Options of a resource group: defaults, parsing, and errors for invalid values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.cluster.group_options import (
    GroupOptions,
    check_changes,
    check_options,
    merged_options,
)
from bai_services.core.errors import InvalidRequest
from bai_services.core.scheduling.caps import Scope
from bai_services.core.scheduling.placement import Policy, Strategy
from bai_services.core.scheduling.queue import Backfill, Order


def test_empty_options_have_defaults() -> None:
    options = GroupOptions.of({})
    assert (options.placement, options.backfill) == (Policy.PRICED, Backfill.RESERVING)
    assert (options.strategy, options.pending_timeout) == (Strategy.EVENLY, 0)


def test_options_are_parsed() -> None:
    options = GroupOptions.of(
        {
            "placement": "spread",
            "backfill": "off",
            "strategy": "FILL",
            "allow_fractional_resource_fragmentation": True,
            "pending_timeout": "1h30m",
            "fair_share": {
                "half_life_days": 3,
                "lookback_days": 14,
                "weights": {"domain": {"default": 2}},
                "resource_weights": {"cpu": 0, "cuda.shares": 20},
            },
        }
    )
    state = options.state("gpu", "fair-share", True)
    assert (state.order, state.placement, state.backfill) == (
        Order.FAIR_SHARE,
        Policy.SPREAD,
        Backfill.OFF,
    )
    assert state.fair_share.weights == {Scope("domain", "default"): 2.0}
    assert state.fair_share.resource_weights == {"cpu": 0.0, "cuda.shares": 20.0}
    assert (state.fair_share.half_life_days, state.fair_share.lookback_days) == (3.0, 14)
    assert options.allow_fractional_resource_fragmentation and options.strategy == Strategy.FILL


def test_durations_are_stored_in_seconds() -> None:
    assert check_options({"pending_timeout": "2h"}) == {"pending_timeout": 7200}
    assert check_options({"pending_timeout": None}) == {"pending_timeout": 0}


def test_times_of_lost_agents_are_stored_in_seconds() -> None:
    given = {"lost_agents": {"requeue_after": "1min", "wait": "2h"}}
    assert check_options(given) == {"lost_agents": {"requeue_after": 60, "wait": 7200}}
    assert check_options({"lost_agents": {"requeue_after": 0}}) == {
        "lost_agents": {"requeue_after": 0}
    }
    assert GroupOptions.of({}).lost_agents.requeue_after_seconds == 600


@pytest.mark.parametrize(
    "given, stored",
    [
        pytest.param(
            "https://Seoul.example.org/", "https://seoul.example.org", id="trailing slash"
        ),
        pytest.param("http://10.0.0.9:8443", "http://10.0.0.9:8443", id="port"),
        pytest.param("https://[fd00::1]:443/", "https://[fd00::1]:443", id="IPv6"),
        pytest.param("", "", id="none"),
    ],
)
def test_proxy_address_is_stored_without_a_path(given: str, stored: str) -> None:
    assert check_options({"proxy_address": given}) == {"proxy_address": stored}
    assert GroupOptions.of({"proxy_address": given}).proxy_address == stored


@pytest.mark.parametrize(
    "options, part",
    [
        *(
            pytest.param({"proxy_address": text}, "must be a URL such as", id=f"address {text!r}")
            for text in (
                "seoul.example.org",
                "ftp://seoul.example.org",
                "javascript:alert(1)",
                "https://",
                "https://a/user",
                "https://a?b",
                "https://a#b",
                "https://user@a",
                "https://a:99999",
                "https://a\n",
                "https://[::1",
            )
        ),
        pytest.param({"proxy_address": None}, "must be a URL such as", id="address is no text"),
        pytest.param({"lost_agents": 5}, "must be a map", id="lost_agents is not a mapping"),
        pytest.param({"lost_agents": {"after": 60}}, "requeue_after, wait", id="unknown time"),
        pytest.param(
            {"lost_agents": {"requeue_after": 44}}, "45 s to 86400 s, or 0", id="requeued too early"
        ),
        pytest.param({"lost_agents": {"wait": "8d"}}, "60 s to 604800 s$", id="waits for too long"),
        pytest.param({"placement": "magic"}, "priced, fgd, best-fit", id="unknown placement"),
        pytest.param({"placement": 1}, "priced", id="placement is a number"),
        pytest.param({"backfill": "some"}, "off, aggressive, reserving", id="unknown backfill"),
        pytest.param({"strategy": "evenly"}, "EVENLY, FILL", id="strategy in lower case"),
        pytest.param({"colour": "red"}, "'colour'.*placement", id="unknown option"),
        pytest.param(
            {"allow_fractional_resource_fragmentation": "yes"},
            "true or false",
            id="text instead of a boolean",
        ),
        pytest.param({"pending_timeout": "soon"}, "duration", id="text that is not a duration"),
        pytest.param({"pending_timeout": -5}, "duration", id="negative duration"),
        pytest.param({"pending_timeout": True}, "duration", id="boolean instead of a duration"),
        pytest.param({"fair_share": []}, "must be a map", id="fair_share is not a mapping"),
        pytest.param({"fair_share": {"half_life_days": 0}}, "from 0.01", id="half life of 0"),
        pytest.param(
            {"fair_share": {"lookback_days": 10**9}}, "to 366", id="lookback period too long"
        ),
        pytest.param(
            {"fair_share": {"half": 1}}, "half_life_days", id="unknown option of fair_share"
        ),
        pytest.param(
            {"fair_share": {"weights": {"team": {"a": 1}}}},
            "domain, project",
            id="unknown kind of scope",
        ),
        pytest.param(
            {"fair_share": {"weights": {"user": {"a": 0}}}},
            "user.a must be a number",
            id="weight of 0",
        ),
        pytest.param(
            {"fair_share": {"default_weight": float("nan")}},
            "not nan",
            id="default weight is not a number",
        ),
        pytest.param({"fair_share": {"default_weight": None}}, "not null", id="null"),
    ],
)
def test_invalid_option_is_rejected_with_the_reason(options: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidRequest, match=part) as refused:
        check_options(options)
    assert str(refused.value.details["field"]).startswith("scheduler_opts")


NAMES = st.sampled_from("abc")
VALUES = st.none() | st.integers(0, 3)
CHANGES = st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES))
STORED = st.dictionaries(
    NAMES, st.integers(0, 3) | st.dictionaries(NAMES, st.integers(0, 3), min_size=1)
)


def paths_of(options: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return the values of options by path."""
    found: dict[tuple[str, ...], Any] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            found |= {(name, *path): each for path, each in paths_of(value).items()}
        else:
            found[name,] = value
    return found


@given(STORED, CHANGES)
def test_merge_changes_the_given_paths_and_no_others(
    stored: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Compare with a naive oracle: a new value replaces the values of its own, parent and child
    paths.
    """
    expected, before = {}, paths_of(stored)
    changed = paths_of(changes)
    for path, value in before.items():
        is_replaced = any(
            path[: len(other)] == other or other[: len(path)] == path for other in changed
        ) or (path[:1] == path and changes.get(path[0]) == {})
        if not is_replaced:
            expected[path] = value
    expected |= {path: value for path, value in changed.items() if value is not None}
    assert paths_of(merged_options(stored, changes)) == expected


def test_invalid_changes_are_rejected() -> None:
    check_changes({"preemption": {"grace": "2m", "mode": None}, "fair_share": None})
    for changes in ({"speed": None}, {"preemption": {"grace": "soon"}}, {"backfill": "maybe"}):
        with pytest.raises(InvalidRequest):
            check_changes(changes)
