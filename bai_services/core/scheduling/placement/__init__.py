"""Placement: choose the agents and devices of a session in one decision."""

from ..placement_options import Designation, Mode, Policy, Strategy
from .jit_warmup import warm_up
from .model import ALIVE, AgentState, Placement, Refusal, Request
from .place import place_first_kernel
from .placer import Placer
from .pricing.tables import Tables
from .pricing.variants import build_tables

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
    "place_first_kernel",
    "warm_up",
]
