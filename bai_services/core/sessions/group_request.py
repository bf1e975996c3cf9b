"""The placement request of a cluster session, from the options of the session and its group.

Unlike `kernel_group`, this module imports the scheduler with its compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..cluster.group_options import GroupOptions
from ..errors import InvalidRequest
from ..scheduling.placement import Designation, Mode, Request
from .kernel_group import MAX_KERNELS


def check_cluster(size: int, mode: str) -> Mode:
    """Validate the size and the mode of a cluster session, and return the mode.

    Raises
    ------
    InvalidRequest
        If the mode does not exist, or the size is outside 1 to ``MAX_KERNELS``.
    """
    if mode not in set(Mode):
        raise InvalidRequest(
            f"{mode[:40]!r} is not a valid cluster_mode; use one of: {', '.join(Mode)}",
            field="cluster_mode",
        )
    if not 1 <= size <= MAX_KERNELS:
        raise InvalidRequest(
            f"cluster_size must be 1 to {MAX_KERNELS}, not {size}", field="cluster_size"
        )
    return Mode(mode)


def request_of(
    plain: Request, group: GroupOptions, size: int, mode: str, options: Mapping[str, Any]
) -> Request:
    """Return the request ``plain`` with the placement options of the group and of the session."""
    fragments = options.get("allow_fractional_resource_fragmentation")
    return replace(
        plain,
        kernels=size,
        mode=Mode(mode),
        designated_agents=tuple(options.get("agent_list") or ()),
        designation=Designation(options.get("agent_selection") or Designation.STRICT),
        allow_fragmentation=(
            group.allow_fractional_resource_fragmentation if fragments is None else fragments
        ),
        strategy=group.strategy,
    )
