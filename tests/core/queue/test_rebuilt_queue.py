"""A queue that is rebuilt after a restart of the manager makes the same decisions as before."""

from __future__ import annotations

from datetime import timedelta

from bai_services.core.scheduling.caps import Scope, ScopeCaps, ScopeKind
from bai_services.core.scheduling.placement import Policy
from bai_services.core.scheduling.queue import (
    Backfill,
    Changes,
    GroupState,
    PendingSession,
    Queue,
    Snapshot,
)

from .factories import NOW, agent, pending_session, request, started_sessions, with_usage


def test_rebuilt_queue_withholds_the_quota_of_reserved_sessions() -> None:
    """A domain may run two sessions in total, in the groups g0 (backfill off) and g1.

    s1 is running, and s2 has a reservation in g1. Together they use up the cap of the domain.
    Therefore s3 in g0 must wait, although g0 is scheduled first.
    """
    domain = Scope(ScopeKind.DOMAIN, "d1")
    caps = {domain: ScopeCaps(domain, "d1", max_sessions=2)}
    agents = [agent(f"{g}a", cpu=4, resource_group=g) for g in ("g0", "g1")]
    groups = {
        "g0": GroupState("g0", placement=Policy.BEST_FIT, backfill=Backfill.OFF),
        "g1": GroupState("g1", placement=Policy.BEST_FIT),
    }

    def session(n: int, group: str, cpu: str, seconds: int, *scopes: Scope) -> PendingSession:
        wanted = request(group, cpu=cpu)
        return pending_session(n, wanted=wanted, scopes=scopes, max_run_seconds=seconds)

    waiting = [
        session(0, "g0", "4", 300),
        session(1, "g1", "4", 1000, domain),
        session(2, "g1", "2", 1000, domain),
        session(3, "g0", "0.5", 1000, domain),
    ]
    queue = Queue(Snapshot(waiting, agents, caps=caps, groups=groups, now=NOW))
    first = queue.run(NOW)
    assert started_sessions(first) == ["s0", "s1"]
    later = NOW + timedelta(seconds=300)
    held = queue.running_session("s1")
    assert held is not None
    busy = [agents[0], with_usage(agents[1], held.slots)]
    rebuilt = Queue(
        Snapshot(
            waiting[2:],
            busy,
            caps=caps,
            usage={domain: {**held.slots, "sessions": 1}},
            groups=groups,
            running=[held],
            now=later,
            reserved=frozenset(r.session_id for r in first.reservations),
        )
    )
    queue.apply(Changes(removed=["s0"]))
    assert started_sessions(queue.run(later)) == started_sessions(rebuilt.run(later)) == []
