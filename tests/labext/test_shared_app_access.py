"""Access of visitors to shared apps: cached decisions of the manager, and the cookie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bai_labext.apps.shared_app_access import CACHE_TTL_SECONDS, GRACE_SECONDS, Visit, Visits
from bai_labext.apps.shared_apps import without_cookie
from bai_services.core.errors import BaiError, Forbidden, Unavailable

VISIT = Visit("tensorboard", "192.0.2.7", "token")


class FakeManager:
    """A manager that admits each visitor, or raises ``error`` if set; it records the requests."""

    def __init__(self) -> None:
        self.now = 0.0
        self.error: BaiError | None = None
        self.requests: list[Mapping[str, str]] = []

    async def __call__(self, credentials: Mapping[str, str]) -> Mapping[str, Any]:
        self.requests.append(credentials)
        if self.error is not None:
            raise self.error
        return {"visit": "token"}

    def clock(self) -> float:
        return self.now


@pytest.fixture
def manager() -> FakeManager:
    return FakeManager()


@pytest.fixture
def visits(manager: FakeManager) -> Visits:
    return Visits(manager, manager.clock)


async def test_an_admitted_visit_is_cached(manager: FakeManager, visits: Visits) -> None:
    assert await visits.enter("tensorboard", "192.0.2.7", "entry") == VISIT
    await visits.check(VISIT)
    assert len(manager.requests) == 1
    # A visit from another address is not in the cache.
    await visits.check(Visit("tensorboard", "192.0.2.8", "token"))
    assert len(manager.requests) == 2
    manager.now = CACHE_TTL_SECONDS
    await visits.check(VISIT)
    assert len(manager.requests) == 3


async def test_a_denied_visit_is_removed_from_the_cache(
    manager: FakeManager, visits: Visits
) -> None:
    await visits.enter("tensorboard", "192.0.2.7", "entry")
    manager.now = CACHE_TTL_SECONDS
    manager.error = Forbidden("revoked")
    with pytest.raises(Forbidden):
        await visits.check(VISIT)
    # When the manager becomes unavailable, a denied visit has no grace period.
    manager.error = Unavailable("unavailable")
    with pytest.raises(Unavailable):
        await visits.check(VISIT)


async def test_admitted_visits_survive_a_short_outage_of_the_manager(
    manager: FakeManager, visits: Visits
) -> None:
    await visits.enter("tensorboard", "192.0.2.7", "entry")
    manager.error = Unavailable("unavailable")
    manager.now = GRACE_SECONDS - 1
    await visits.check(VISIT)
    # A visit that was never admitted has no grace period.
    with pytest.raises(Unavailable):
        await visits.check(Visit("tensorboard", "192.0.2.7", "forged"))
    manager.now = GRACE_SECONDS
    with pytest.raises(Unavailable):
        await visits.check(VISIT)


async def test_a_request_without_a_cookie_is_denied_locally(
    manager: FakeManager, visits: Visits
) -> None:
    with pytest.raises(Forbidden):
        await visits.check(Visit("tensorboard", "192.0.2.7", ""))
    assert manager.requests == []


@pytest.mark.parametrize(
    ("header", "rest"),
    [
        ("bai-visit=a.b", ""),
        ("x=1; bai-visit=a.b; y=2", "x=1; y=2"),
        ("x=bai-visit", "x=bai-visit"),
        ("", ""),
    ],
)
def test_the_cookie_of_a_visit_is_not_sent_to_the_app(header: str, rest: str) -> None:
    assert without_cookie(header) == rest
