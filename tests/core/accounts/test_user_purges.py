"""Folders and the anonymous name of a purged user."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.accounts.user_purges import (
    MAX_FOLDER_NAME,
    OwnedFolder,
    PurgeAction,
    PurgeOptions,
    anonymous_name,
    name_after_transfer,
    purge_action_of,
)
from bai_services.core.errors import Conflict
from bai_services.core.folders.vfolders import VfolderStatus as S
from bai_services.core.folders.vfolders import check_name, is_auto_mounted
from bai_services.core.names import check_username

OPTIONS = PurgeOptions(folders=PurgeAction.DELETE, shared_folders=PurgeAction.TRANSFER)


@pytest.mark.parametrize(
    ("status", "is_shared", "action"),
    [
        (S.READY, False, PurgeAction.DELETE),
        (S.READY, True, PurgeAction.TRANSFER),
        (S.ERROR, True, PurgeAction.DELETE),
        (S.DELETE_PENDING, True, PurgeAction.DELETE),
        (S.DELETE_ERROR, False, PurgeAction.DELETE),
        (S.DELETE_ONGOING, False, None),
        (S.DELETE_COMPLETE, False, None),
    ],
)
def test_folder_of_a_purged_user_is_deleted_or_transferred(
    status: S, is_shared: bool, action: PurgeAction | None
) -> None:
    assert purge_action_of(OwnedFolder("1", "data", status, is_shared), OPTIONS) is action


@pytest.mark.parametrize("status", [S.CLONING, S.PERFORMING])
def test_a_busy_folder_prevents_the_purge(status: S) -> None:
    with pytest.raises(Conflict):
        purge_action_of(OwnedFolder("1", "data", status, False), OPTIONS)


NAMES = st.from_regex(r"\.?[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", fullmatch=True)


@given(NAMES, st.sets(NAMES, max_size=4), st.integers(0, 3))
def test_name_after_a_transfer_is_valid_free_and_not_auto_mounted(
    name: str, others: set[str], earlier: int
) -> None:
    taken = set(others)
    for _ in range(earlier):
        taken.add(name_after_transfer(name, "ann", taken))
    after = name_after_transfer(name, "ann", taken)
    assert check_name(after) == after
    assert after not in taken
    assert not is_auto_mounted(after)
    assert len(after) <= MAX_FOLDER_NAME
    assert (after == name) == (name not in taken and not is_auto_mounted(name))


def test_anonymous_name_is_a_valid_user_name() -> None:
    name = anonymous_name("0b5e7c1a-9d0e-4c8f-8f7a-3a1b2c3d4e5f")
    assert check_username(name) == name == "purged-0b5e7c1a9d0e"
