"""Enforcement levels of device shares, and the range of shares that a device offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import InvalidRequest
from ..resources import SHARE_MINIMUM, SHARE_UNIT, format_amount, parse_amount

# Maximum share on a device that does not limit shares; larger than the capacity of any cluster.
ANY_SHARE = 2**40
_SLOT = "any.shares"
# The facts of a device that describe its sharing.
SHARING_FACTS = ("enforcement", "shares")


class Level(StrEnum):
    """Enforcement level of a session's share of a device, from weakest to strongest."""

    NONE = "none"
    SOFT = "soft"
    PROCESS = "process"
    CGROUP = "cgroup"
    HARDWARE = "hardware"

    @property
    def rank(self) -> int:
        """The position of the level, from 0 for the weakest."""
        return list(Level).index(self)

    def is_at_least(self, other: Level) -> bool:
        return self.rank >= other.rank

    @classmethod
    def weakest(cls, levels: Iterable[Level]) -> Level:
        """Return the weakest level; raise ValueError if ``levels`` is empty."""
        return min(levels, key=lambda level: level.rank)


@dataclass(frozen=True, slots=True)
class Sharing:
    """The range of shares that a device offers, in thousandths, and their enforcement level.

    ``least`` and ``most`` limit the share of one session; ``most`` is 0 if the device offers no
    shares. If ``most`` is less than ``ANY_SHARE``, a session cannot combine shares of this device
    with shares of another. ``is_paused``: no share can be allocated now. ``is_uniform``: all
    sessions on the device have the same share; the first session on the empty device sets it.
    """

    level: Level = Level.NONE
    least: int = SHARE_MINIMUM
    most: int = ANY_SHARE
    is_paused: bool = False
    is_uniform: bool = False

    @property
    def max_share_now(self) -> int:
        return 0 if self.is_paused else self.most

    @property
    def clients(self) -> int:
        """Number of sessions with the smallest share that fit on the device; 0 if it offers no
        shares.
        """
        return SHARE_UNIT // self.least if self.most else 0

    def in_force(self, shares: Iterable[int]) -> int:
        """Return the share that the next session must have while ``shares`` are in use; 0: any."""
        return max(shares, default=0) if self.is_uniform else 0

    def allows(self, share: int, in_force: int) -> bool:
        """Return whether a session may have a share, regardless of the free capacity.

        ``in_force`` is the share that all sessions on the device must have; 0: any.
        """
        return self.least <= share <= self.max_share_now and in_force in (0, share)

    def restricted_to(self, minimum: Level) -> Sharing:
        """Return this sharing; if its level is below ``minimum``, return it without shares."""
        return self if self.level.is_at_least(minimum) else Sharing(self.level, self.least, 0)

    def to_facts(self) -> dict[str, Any]:
        """Return the sharing entries of a device's facts.

        ``from_facts`` restores an equivalent sharing, but not always the same values: ``most`` is
        limited to a whole device, and only the level of a device without shares is written.
        """
        if not self.most:
            return {"enforcement": self.level.value, "shares": None}
        most = min(self.most, SHARE_UNIT)
        texts = {"least": format_amount(_SLOT, self.least), "most": format_amount(_SLOT, most)}
        flags = {
            "on_one_device": self.most < ANY_SHARE,
            "is_paused": self.is_paused,
            "is_uniform": self.is_uniform,
        }
        shares = {**texts, **flags, "clients": self.clients}
        return {"enforcement": self.level.value, "shares": shares}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Sharing:
        """Parse the facts of a device; a device without sharing entries offers any share."""
        name = facts.get("enforcement")
        level = Level(name) if isinstance(name, str) and name in set(Level) else Level.NONE
        shares = facts.get("shares", {})
        if shares is None:
            return cls(level, most=0)
        try:
            least = parse_amount(_SLOT, shares.get("least", "0")) or SHARE_MINIMUM
            most = parse_amount(_SLOT, shares["most"]) if shares.get("on_one_device") else ANY_SHARE
            flags = (bool(shares.get(name)) for name in ("is_paused", "is_uniform"))
            return cls(level, least, most, *flags)
        except (AttributeError, KeyError, TypeError, InvalidRequest):
            # A newer agent may send unknown values: offer no shares.
            return cls(level, most=0)
