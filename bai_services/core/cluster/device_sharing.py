"""Enforcement levels of device shares, and the shares that a session may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import InvalidRequest
from ..resources import SHARE_MINIMUM, SHARE_UNIT, format_amount, parse_amount

# More than any session could request.
ANY_SHARE = 2**40
_SLOT = "any.shares"


class Level(StrEnum):
    """Enforcement level of a session's share of a device, the strictest last."""

    NONE = "none"
    SOFT = "soft"
    PROCESS = "process"
    CGROUP = "cgroup"
    HARDWARE = "hardware"

    @property
    def firmness(self) -> int:
        return list(Level).index(self)

    def is_at_least(self, other: Level) -> bool:
        return self.firmness >= other.firmness


@dataclass(frozen=True, slots=True)
class Sharing:
    """The shares of a device that a session may have, in thousandths, and their enforcement level.

    ``most`` 0 offers none. A finite ``most`` also requires a session's share to be on one device:
    it is compared with the whole request. ``is_paused`` means that nothing can be allocated just
    now. Where shares are ``is_uniform``, all sessions on the device have the same share: that of
    the first one, until the device is empty.
    """

    level: Level = Level.NONE
    least: int = SHARE_MINIMUM
    most: int = ANY_SHARE
    is_paused: bool = False
    is_uniform: bool = False

    @property
    def most_now(self) -> int:
        return 0 if self.is_paused else self.most

    @property
    def clients(self) -> int:
        """Maximum number of sessions on the device, given its smallest share; 0: it is not
        shared.
        """
        return SHARE_UNIT // self.least if self.most else 0

    def in_force(self, shares: Iterable[int]) -> int:
        """Return the share that the next session must have, given the current ``shares``; 0:
        any.
        """
        return max(shares, default=0) if self.is_uniform else 0

    def bears(self, share: int, in_force: int) -> bool:
        """Return whether a session may have that share of the device, ignoring what is free on
        it.
        """
        return self.least <= share <= self.most_now and in_force in (0, share)

    def holding(self, minimum: Level) -> Sharing:
        """Return the sharing that remains where at least that enforcement level is required."""
        return self if self.level.is_at_least(minimum) else Sharing(self.level, self.least, 0)

    def to_facts(self) -> dict[str, Any]:
        """Return the entries for a device's facts; ``of`` reads them back."""
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
    def of(cls, facts: Mapping[str, Any]) -> Sharing:
        """Read the facts of a device; without such entries any share is offered."""
        given = facts.get("enforcement")
        level = Level(given) if given in set(Level) else Level.NONE
        shares = facts.get("shares", {})
        if shares is None:
            return cls(level, most=0)
        try:
            least = parse_amount(_SLOT, shares.get("least", "0")) or SHARE_MINIMUM
            most = parse_amount(_SLOT, shares["most"]) if shares.get("on_one_device") else ANY_SHARE
            flags = (bool(shares.get(name)) for name in ("is_paused", "is_uniform"))
            return cls(level, least, most, *flags)
        except (AttributeError, KeyError, TypeError, InvalidRequest):
            # Unknown values may come from a newer agent: offer nothing.
            return cls(level, most=0)
