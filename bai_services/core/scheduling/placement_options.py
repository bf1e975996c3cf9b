"""Values of the placement options of sessions and resource groups.

The module is outside of the package `placement`, because importing that package loads compiled
code.
"""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """Rule for choosing one of the agents that fit."""

    PRICED = "priced"
    FGD = "fgd"
    BEST_FIT = "best-fit"
    PACK = "pack"
    SPREAD = "spread"
    ROUND_ROBIN = "round-robin"
    RANDOM = "random"


class Strategy(StrEnum):
    """How to divide a share larger than one device: into equal parts, or device by device."""

    EVENLY = "EVENLY"
    FILL = "FILL"


class Mode(StrEnum):
    """Whether all kernels of a session run on one agent, or each is placed separately."""

    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"


class Designation(StrEnum):
    """Whether designated agents are required or only preferred."""

    STRICT = "strict"
    PREFERRED = "preferred"
