"""Administrator's settings for sharing the GPUs of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from traitlets import Bool, CaselessStrEnum, Enum, Unicode
from traitlets.config import Configurable

from bai_services.core.cluster.device_sharing import Level
from bai_services.core.resources import parse_amount

from ..machine import bubblewrap_problem
from .memory_watchdog import Action
from .nvidia.cuda import GpuRules
from .nvidia.mps import why_no_program
from .nvidia.mps_servers import MpsServers

# The first session on a GPU determines the size of its shares.
ANY = "any"


class SharingSettings(Configurable):
    """Which shares of GPUs this agent offers, and how they are enforced."""

    minimum_enforcement = Enum(
        [level.value for level in Level],
        Level.NONE.value,
        help="Required enforcement level of shares: none, soft, process, cgroup, hardware. Where a "
        "GPU reaches less, its shares are not offered; whole GPUs are. A resource group may "
        "require more. `BAI_AGENT_MINIMUM_ENFORCEMENT` sets it too.",
    ).tag(config=True)

    mps_share = Unicode(
        ANY,
        help="Part of a GPU that each session gets where MPS enforces shares. MPS has one limit "
        "for all programs of a GPU, so all shares of one GPU are equal: with `any` those of an "
        "empty GPU are as its first session requests, until it is empty again; with an amount like "
        "0.25 all shares have that size. Empty: MPS is not used. No effect where it is not "
        "installed, or the driver limits containers by itself. `BAI_AGENT_MPS_SHARE` sets it too.",
    ).tag(config=True)

    set_compute_mode = Bool(
        False,
        help="Whether the agent may change the compute mode of GPUs: EXCLUSIVE_PROCESS while one "
        "is shared through MPS, so that no program can bypass it, and DEFAULT while a session has "
        "it whole. Otherwise modes are not changed. Requires root. "
        "`BAI_AGENT_SET_COMPUTE_MODE` sets it too.",
    ).tag(config=True)

    rngd_parts = CaselessStrEnum(
        ["1", "2", "4", "8"],
        "1",
        help="Into how many equal parts each Furiosa RNGD is divided. Sessions ask for parts as "
        "`rngd.pe-4`, `rngd.pe-2` or `rngd.pe-1`, by their number of processing elements. "
        "`BAI_AGENT_RNGD_PARTS` sets it too.",
    ).tag(config=True)

    run_folder = Unicode(
        help="Folder for the sockets of MPS, with a short path; empty is `/run/bai-hub/ID` for "
        "root and `run` in the state folder for others. `BAI_AGENT_RUN_FOLDER` sets it too.",
    ).tag(config=True)

    def rules(self, engine: str, agent_id: str, home: Path, excess: Action) -> GpuRules:
        """Return the rules for GPUs of this machine; it reads the machine's state, so it blocks.

        Raises
        ------
        InvalidRequest
            If ``mps_share`` is neither a share nor ``any``.
        """
        problem, has_own_shm = self._mps_needs(engine)
        mps = None
        share = 0 if self.mps_share in ("", ANY) else parse_amount("cuda.shares", self.mps_share)
        if not self.mps_share:
            problem = "it is switched off: SharingSettings.mps_share is empty"
        if not problem:
            mps = MpsServers(self._run(agent_id, home) / "mps", share, has_own_shm=has_own_shm)
            problem = mps.problem()
        return GpuRules(
            engine=engine,
            minimum=Level(self.minimum_enforcement),
            mps=None if problem else mps,
            no_mps=problem,
            may_set_mode=self.set_compute_mode,
            no_watchdog=(
                "AgentApp.device_excess is warn: sessions that use too much are not stopped"
                if excess is Action.WARN
                else ""
            ),
        )

    def _run(self, agent_id: str, home: Path) -> Path:
        if self.run_folder:
            return Path(self.run_folder).absolute()
        return Path("/run/bai-hub") / agent_id if os.geteuid() == 0 else home.absolute() / "run"

    def _mps_needs(self, engine: str) -> tuple[str, bool]:
        """Return why MPS cannot be used, and whether its daemon needs a separate shared memory."""
        if problem := why_no_program():
            return problem, False
        # A client with a separate /dev/shm cannot communicate with a daemon on the machine's.
        is_apart = engine == "docker" or bubblewrap_problem() is None
        if is_apart and os.geteuid() != 0:
            return "only an agent that runs as root can share memory with isolated sessions", False
        return "", is_apart
