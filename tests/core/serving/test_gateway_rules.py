"""Choice of replicas, limits and usage of tokens, and the routing table as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.serving.balancing import (
    WeightedTurns,
    by_prefix,
    least_outstanding,
    owner_limit,
)
from bai_services.core.serving.gateway_json import table_as_json, table_from_json
from bai_services.core.serving.gateway_records import (
    EndpointRoute,
    ReplicaRoute,
    RoutingTable,
    TokenRoute,
)
from bai_services.core.serving.token_limits import RequestRate
from bai_services.core.serving.token_usage import KEPT_BYTES, UsageReader, tokens_in


@dataclass
class Busy:
    id: str
    outstanding: int


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), min_size=1))
def test_shares_are_exact_over_each_period(weights: dict[str, int]) -> None:
    turns, total = WeightedTurns(), sum(weights.values())
    for _ in range(2):
        found = Counter(turns.next(sorted(weights), weights) for _ in range(total))
        assert found == {name: weight for name, weight in weights.items() if weight}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 10))
def test_least_outstanding(counts: list[int], turn: int) -> None:
    candidates = [Busy(str(number), count) for number, count in enumerate(counts)]
    assert least_outstanding(candidates, turn).outstanding == min(counts)


@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=300),
)
def test_owner_without_requests_gets_any_free_connection(
    connections: int, events: list[tuple[int, bool]]
) -> None:
    running: Counter[int] = Counter()
    for owner, is_end in events:
        free = connections - running.total()
        limit = owner_limit(connections, connections, running.total())
        if is_end:
            running[owner] -= running[owner] > 0
        elif running[owner] < limit:
            running[owner] += 1
        assert running.total() <= connections
        assert (limit > 0) == (free > 0)


@given(st.integers(1, 8), st.integers(1, 300))
def test_busy_owners_get_equal_shares_and_leave_one(owners: int, connections: int) -> None:
    running: Counter[int] = Counter(dict.fromkeys(range(owners), 0))
    for owner in list(range(owners)) * connections:
        if running[owner] < owner_limit(connections, connections, running.total()):
            running[owner] += 1
    assert max(running.values()) - min(running.values()) <= 1
    assert connections - running.total() >= connections // (owners + 1)


def test_lost_replica_moves_only_its_own_prefixes() -> None:
    candidates = [Busy(str(number), 0) for number in range(5)]
    prefixes = [str(number).encode() for number in range(200)]
    before = {prefix: by_prefix(candidates, prefix).id for prefix in prefixes}
    assert len(set(before.values())) == 5
    after = {prefix: by_prefix(candidates[1:], prefix).id for prefix in prefixes}
    assert all(after[p] == before[p] for p in prefixes if before[p] != "0")
    busy = [Busy("0", 9), *candidates[1:]]
    assert all(by_prefix(busy, prefix).id != "0" for prefix in prefixes)


@given(st.lists(st.floats(0, 60), max_size=60), st.integers(1, 20))
def test_rate_never_allows_more_than_a_full_minute_and_the_refill(
    pauses: list[float], limit: int
) -> None:
    rate, now, allowed = RequestRate(limit), 0.0, 0
    for pause in pauses:
        now += pause
        wait = rate.take(now)
        allowed += wait == 0
        assert 0 <= wait <= 60 / limit + 1e-6
    assert allowed <= limit + now * limit / 60 + 1e-6


@pytest.mark.parametrize(
    ("tail", "tokens"),
    [
        (b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}', (3, 4)),
        (b'{"usage":{"input_tokens":3,"output_tokens":4}}', (3, 4)),
        (b'data: {"usage":{"prompt_tokens":3}}\n\ndata: {"usage": null}\n\ndata: [DONE]', (3, 0)),
        (rb'{"text": "\"usage\": {\"prompt_tokens\": 9}"}', (0, 0)),
        (b'{"usage": {"prompt_tokens": -3, "completion_tokens": 1e99}}', (0, 0)),
        (b'{"usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}", (0, 0)),
        (b'{"usage": {"prompt_tokens": ' + b"9" * 30 + b"}}", (10**9, 0)),
        (b'{"usage": ' + b"[" * 15000, (0, 0)),
        (b'"usage"' * 1000, (0, 0)),
        (b"\xff\xfe", (0, 0)),
    ],
)
def test_tokens_of_a_response(tail: bytes, tokens: tuple[int, int]) -> None:
    assert tokens_in(tail) == tokens


def test_only_the_end_of_a_response_is_kept() -> None:
    reader = UsageReader()
    for _ in range(100):
        reader.add(b"x" * KEPT_BYTES)
    for piece in (b'{"us', b'age": {"prompt_tokens": 3, "comp', b'letion_tokens": 4}}'):
        reader.add(piece)
    assert reader.result() == (3, 4)


def test_table_survives_json_and_hides_secrets() -> None:
    endpoint = EndpointRoute(
        id="e", name="chat", owner_id="o1", is_public=True, is_paused=False, weights={"v": 1},
        replicas=(ReplicaRoute("r", "v", "http://x:1", "hidden", False),),
        tokens=(TokenRoute("t", "hidden", ("10.0.0.0/8",), 1.5, 60, None),),
        health_path="/", max_queue=1, queue_seconds=1, max_concurrent_per_replica=1,
        request_seconds=1, max_body_bytes=1,
    )  # fmt: skip
    table = RoutingTable("7", (endpoint,))
    assert table_from_json(json.loads(json.dumps(table_as_json(table)))) == table
    assert "hidden" not in repr(table)
