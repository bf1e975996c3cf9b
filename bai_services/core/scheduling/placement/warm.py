"""Compiles what placement runs, before the first pass needs it."""

from __future__ import annotations

from ...cluster.devices import Device
from ...resources import CPU, MEM, ResourceSlots
from .mix import starting_mix
from .model import AgentState, Policy, Request
from .placer import Placer
from .variants import choose_tables


def warm_up() -> None:
    """Compile every function that placement runs: some ten seconds once, then from disk.

    Run it in a thread when the manager starts. The compiled code is kept beside
    the sources, or in the user's cache folder where these cannot be written.
    """
    device = Device("warm-0", "cuda")
    agent = AgentState("warm", "warm", "", "", {CPU: 4000, MEM: 2**34}, devices=(device,))
    placer = Placer([agent], Policy.PRICED, choose_tables(starting_mix([agent]), [agent]))
    slots = ResourceSlots({CPU: 1000, MEM: 2**30, "cuda.shares": 500})
    request = placer.prepare(Request(slots, "warm", ""))
    placed = placer.place(request)
    placer.release(placed or ())
    # The second look at a request, and the second look ahead, are those of a pass.
    placer.fits_all([request])
    placer.spare(placer.fork())
    placer.fork()
