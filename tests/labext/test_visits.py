"""Visitors of shared apps, as the session's server knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bai_labext.apps.shared_app_access import CACHE_TTL_SECONDS, GRACE_SECONDS, Visit, Visits
from bai_labext.apps.shared_apps import without_cookie
from bai_services.core.errors import BaiError, Forbidden, Unavailable

VISIT = Visit("tensorboard", "192.0.2.7", "pass")


class Manager:
    """Says what a manager would, and counts how often it was asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answer: BaiError | None = None
        self.asked: list[Mapping[str, str]] = []

    async def __call__(self, shown: Mapping[str, str]) -> Mapping[str, Any]:
        self.asked.append(shown)
        if self.answer is not None:
            raise self.answer
        return {"visit": "pass"}

    def clock(self) -> float:
        return self.now


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def visits(manager: Manager) -> Visits:
    return Visits(manager, manager.clock)


async def test_an_answer_holds_for_a_few_seconds(manager: Manager, visits: Visits) -> None:
    assert await visits.enter("tensorboard", "192.0.2.7", "entry") == VISIT
    await visits.check(VISIT)
    assert len(manager.asked) == 1
    # From elsewhere, or to another app, is another visit.
    await visits.check(Visit("tensorboard", "192.0.2.8", "pass"))
    assert len(manager.asked) == 2
    manager.now = CACHE_TTL_SECONDS
    manager.answer = Forbidden("taken back")
    with pytest.raises(Forbidden):
        await visits.check(VISIT)
    # What was refused is not remembered as admitted when the manager goes away.
    manager.answer = Unavailable("away")
    with pytest.raises(Unavailable):
        await visits.check(VISIT)


async def test_a_manager_that_is_away_keeps_nobody_out_who_was_in(
    manager: Manager, visits: Visits
) -> None:
    await visits.enter("tensorboard", "192.0.2.7", "entry")
    manager.answer = Unavailable("away")
    manager.now = GRACE_SECONDS - 1
    await visits.check(VISIT)
    manager.now = GRACE_SECONDS
    with pytest.raises(Unavailable):
        await visits.check(VISIT)
    with pytest.raises(Unavailable):
        await visits.check(Visit("tensorboard", "192.0.2.7", "made up"))


async def test_nothing_to_show_is_refused_without_a_question(
    manager: Manager, visits: Visits
) -> None:
    with pytest.raises(Forbidden):
        await visits.check(Visit("tensorboard", "192.0.2.7", ""))
    assert manager.asked == []


@pytest.mark.parametrize(
    ("header", "rest"),
    [
        ("bai-visit=a.b", ""),
        ("x=1; bai-visit=a.b; y=2", "x=1; y=2"),
        ("x=bai-visit", "x=bai-visit"),
        ("", ""),
    ],
)
def test_the_pass_is_kept_from_the_app(header: str, rest: str) -> None:
    assert without_cookie(header) == rest
