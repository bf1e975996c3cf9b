"""Compile the placement functions before the first pass needs them."""

from __future__ import annotations

from ...cluster.devices import Device
from ...resources import CPU, MEM, ResourceSlots
from ..placement_options import Policy
from .model import AgentState, Request
from .placer import Placer
from .pricing.mix import default_mix
from .pricing.variants import choose_tables


def warm_up() -> None:
    """Compile the placement functions, or load the compiled functions from disk.

    Compilation takes 10 to 40 s of CPU time, so call this in a separate thread or process when the
    manager starts. The compiled code is stored next to the sources, or in the user's cache folder
    if the sources are read-only.
    """
    device = Device("warm-0", "cuda")
    agent = AgentState("warm", "warm", "", "", {CPU: 4000, MEM: 2**34}, devices=(device,))
    placer = Placer([agent], Policy.PRICED, choose_tables(default_mix([agent]), [agent]))
    slots = ResourceSlots({CPU: 1000, MEM: 2**30, "cuda.shares": 500})
    request = placer.prepare(Request(slots, "warm", ""))
    placed = placer.place(request)
    placer.release(placed or ())
    # Search and fork twice: the second calls use functions that the first calls do not use.
    placer.fits_each([request])
    placer.recycle(placer.fork())
    placer.fork()
