"""Conditions for visible rows, compared with `Visibility.covers`."""

from __future__ import annotations

from itertools import product

import pytest
import sqlalchemy as sa

from bai_services.core.accounts.roles import Visibility
from bai_services.db.accounts.visibility import visible_rows

ITEMS = sa.Table(
    "items",
    sa.MetaData(),
    *(sa.Column(name, sa.String) for name in ("domain", "project_id", "owner_id")),
)
ROWS = list(product(("d1", "d2"), ("p1", "p2", "p3"), ("ann", "bob")))
ONLY_PROJECTS = Visibility(project_ids=frozenset({"p1", "p2"}))


def found(visible: Visibility, has_projects: bool) -> list[tuple[str, ...]]:
    engine = sa.create_engine("sqlite://")
    c = ITEMS.c
    conditions = visible_rows(
        visible,
        domain=c.domain,
        owner_id=c.owner_id,
        project_id=c.project_id if has_projects else None,
    )
    with engine.begin() as tx:
        ITEMS.create(tx)
        tx.execute(ITEMS.insert(), [dict(zip(ITEMS.c.keys(), row, strict=True)) for row in ROWS])
        rows = [tuple(row) for row in tx.execute(sa.select(ITEMS).where(*conditions))]
    engine.dispose()
    return sorted(rows)


@pytest.mark.parametrize(
    "visible", [Visibility(), Visibility(domain="d1"), ONLY_PROJECTS, Visibility(owner_id="ann")]
)
def test_visible_rows_are_those_that_the_visibility_covers(visible: Visibility) -> None:
    expected = sorted(row for row in ROWS if visible.covers(*row))
    assert expected
    assert found(visible, has_projects=True) == expected


def test_list_without_projects_has_no_rows_for_a_caller_restricted_to_projects() -> None:
    assert found(ONLY_PROJECTS, has_projects=False) == []
