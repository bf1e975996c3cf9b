"""Triggers: signatures of calls, patterns of files, and chains of pipelines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest, NotSignedIn
from bai_services.core.pipelines.definition import Value
from bai_services.core.pipelines.states import RUN_ENDED, RunStatus
from bai_services.core.pipelines.triggers import (
    WINDOW_SECONDS,
    RunResult,
    TriggerKind,
    chain,
    check_call,
    check_references,
    fires,
    parameters_of,
    parse_pattern,
    run_id_of,
)
from bai_services.core.sessions.callbacks import signature

NOW = datetime(2026, 3, 2, tzinfo=UTC)
STAMP = int(NOW.timestamp())
BODY = b'{"parameters": {}}'


def test_signed_call_is_valid_in_its_window() -> None:
    for seconds in (-WINDOW_SECONDS, 0, WINDOW_SECONDS):
        now = NOW + timedelta(seconds=seconds)
        check_call("secret", str(STAMP), signature("secret", STAMP, BODY), BODY, now)


@pytest.mark.parametrize(
    ("secret", "timestamp", "body", "seconds"),
    [
        pytest.param("other", str(STAMP), BODY, 0, id="another secret"),
        pytest.param("secret", str(STAMP), b"{}", 0, id="another body"),
        pytest.param("secret", str(STAMP + 1), BODY, 0, id="another timestamp"),
        pytest.param("secret", str(STAMP), BODY, WINDOW_SECONDS + 1, id="too late"),
        pytest.param("secret", str(STAMP), BODY, -WINDOW_SECONDS - 1, id="too early"),
        pytest.param("secret", "", BODY, 0, id="no timestamp"),
        pytest.param("secret", "9" * 5000, BODY, 0, id="a huge timestamp"),
        pytest.param("secret", f"{STAMP}.5", BODY, 0, id="a fraction"),
    ],
)
def test_calls_with_a_wrong_signature_or_time_are_refused(
    secret: str, timestamp: str, body: bytes, seconds: int
) -> None:
    signed = signature("secret", STAMP, BODY)
    with pytest.raises(NotSignedIn, match="signature is not valid"):
        check_call(secret, timestamp, signed, body, NOW + timedelta(seconds=seconds))


def test_signatures_with_other_characters_are_refused() -> None:
    for signed in ("", "v1=", "\ud800", "v1=é"):
        with pytest.raises(NotSignedIn):
            check_call("secret", str(STAMP), signed, BODY, NOW)


def test_each_call_has_its_own_run() -> None:
    ids = {run_id_of(trigger, call) for trigger in ("a", "b") for call in ("v1=1", "v1=2")}
    assert len(ids) == 4
    assert run_id_of("a", "v1=1") in ids


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.csv", ["a.csv", "ä b.csv"], ["a.tsv", ".a.csv", "x/a.csv"]),
        ("in/202?/[ab]*", ["in/2026/a", "in/2027/box"], ["in/2026/c", "in/20261/a", "in/2026"]),
        (".part/*", [".part/a"], ["part/a", ".part/.a"]),
        ("a.b+c", ["a.b+c"], ["aXb+c", "a.bbc"]),
    ],
)
def test_pattern_matches_each_level_of_a_path(
    pattern: str, matching: list[str], other: list[str]
) -> None:
    levels = parse_pattern(pattern)

    def matches(path: str) -> bool:
        parts = path.split("/")
        return len(parts) == len(levels) and all(
            level.fullmatch(part) for level, part in zip(levels, parts, strict=True)
        )

    assert [path for path in matching + other if matches(path)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "../a",
        "a/./b",
        "**/a",
        "a\0b",
        "a" * 256,
        "/".join("a" * 9),
        "?" * 21,
    ],
)
def test_invalid_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="not a valid pattern"):
        parse_pattern(pattern)


@pytest.mark.parametrize(
    ("result", "fired"),
    [
        (RunResult.SUCCESS, {RunStatus.SUCCEEDED}),
        (RunResult.FAILURE, {RunStatus.FAILED}),
        (RunResult.ANY, RUN_ENDED),
    ],
)
def test_result_of_a_run_fires_a_trigger(result: RunResult, fired: set[RunStatus]) -> None:
    assert {status for status in RUN_ENDED if fires(result, status)} == set(fired)


def test_parameters_refer_to_values_of_the_event() -> None:
    values: dict[str, Value] = {"path": "$FILE", "price": "$$5", "level": 3}
    check_references(TriggerKind.FILE, values)
    assert parameters_of(values, {"FILE": "a.csv"}) == {"path": "a.csv", "price": "$5", "level": 3}
    with pytest.raises(InvalidRequest, match=r"a trigger of kind pipeline has \$RUN, \$STATUS"):
        check_references(TriggerKind.PIPELINE, values)


@given(
    edges=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20),
    start=st.integers(0, 7),
    end=st.integers(0, 7),
)
def test_chain_is_a_shortest_path(edges: set[tuple[int, int]], start: int, end: int) -> None:
    followers: dict[str, list[str]] = {}
    for source, target in sorted(edges):
        followers.setdefault(str(source), []).append(str(target))
    found = chain(followers, str(start), str(end))
    # The oracle: the nodes that can be reached with a number of steps.
    reached = [{start}]
    for _ in range(8):
        reached.append({target for source, target in edges if source in reached[-1]})
    steps = next((number for number, nodes in enumerate(reached) if end in nodes), None)
    assert len(found) == (0 if steps is None else steps + 1)
    if found:
        assert (found[0], found[-1]) == (str(start), str(end))
        assert all(
            (int(one), int(other)) in edges for one, other in zip(found, found[1:], strict=False)
        )
