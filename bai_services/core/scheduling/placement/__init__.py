"""Which agent and which devices a session goes to: node and device in one decision."""

from .model import (
    ALIVE,
    AgentState,
    Designation,
    Mode,
    Placement,
    Policy,
    Refusal,
    Request,
    Strategy,
)
from .place import place
from .placer import Placer
from .tables import Tables
from .variants import build_tables
from .warm import warm_up

__all__ = [
    "ALIVE",
    "AgentState",
    "Designation",
    "Mode",
    "Placement",
    "Placer",
    "Policy",
    "Refusal",
    "Request",
    "Strategy",
    "Tables",
    "build_tables",
    "place",
    "warm_up",
]
