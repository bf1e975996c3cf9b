"""Settings for sharing the GPUs of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from traitlets import Bool, CaselessStrEnum, Enum, Unicode
from traitlets.config import Configurable

from bai_services.core.cluster.device_sharing import Level
from bai_services.core.resources import parse_amount

from ..machine import bubblewrap_problem
from .memory_watchdog import Action
from .nvidia.cuda import MPS_DISABLED, GpuRules
from .nvidia.mps import program_problem
from .nvidia.mps_servers import MpsServers

# Value of ``mps_share``: the first session on a GPU determines the share of all its sessions.
ANY = "any"


class SharingSettings(Configurable):
    """The shares of GPUs that this agent offers, and how they are enforced."""

    minimum_enforcement = Enum(
        [level.value for level in Level],
        Level.NONE.value,
        help="Minimum enforcement level of shares: none, soft, process, cgroup or hardware. A GPU "
        "with a lower level is offered only as a whole. A resource group may require a higher "
        "level. Environment: `BAI_AGENT_MINIMUM_ENFORCEMENT`.",
    ).tag(config=True)

    mps_share = Unicode(
        ANY,
        help="Share of a GPU per session when MPS enforces shares. MPS applies one limit to all "
        "programs on a GPU, so all shares of a GPU are equal. `any`: the first session on an empty "
        "GPU sets the share until the GPU is empty again. An amount such as 0.25: all shares have "
        "this size. Empty: MPS is not used. No effect if MPS is not installed or if the driver "
        "limits containers. Environment: `BAI_AGENT_MPS_SHARE`.",
    ).tag(config=True)

    set_compute_mode = Bool(
        False,
        help="Whether the agent may change the compute mode of GPUs: to EXCLUSIVE_PROCESS while a "
        "GPU is shared through MPS, so that no program can bypass MPS, and to DEFAULT while one "
        "session has the whole GPU. Requires root. "
        "Environment: `BAI_AGENT_SET_COMPUTE_MODE`.",
    ).tag(config=True)

    rngd_parts = CaselessStrEnum(
        ["1", "2", "4", "8"],
        "1",
        help="Number of equal parts into which each Furiosa RNGD is divided. Sessions request the "
        "parts by their number of processing elements: `rngd.pe-4`, `rngd.pe-2` or `rngd.pe-1`. "
        "Environment: `BAI_AGENT_RNGD_PARTS`.",
    ).tag(config=True)

    run_folder = Unicode(
        help="Folder for the sockets of MPS; its path must be short. Empty: `/run/bai-hub/ID` for "
        "root, and `run` in the state folder for other users. Environment: `BAI_AGENT_RUN_FOLDER`.",
    ).tag(config=True)

    def rules(self, engine: str, agent_id: str, home: Path, excess: Action) -> GpuRules:
        """Return the sharing rules of this machine's GPUs; blocking.

        Raises
        ------
        InvalidRequest
            If ``mps_share`` is not valid.
        """
        problem, has_own_shm = self._mps_requirements(engine)
        mps = None
        share = 0 if self.mps_share in ("", ANY) else parse_amount("cuda.shares", self.mps_share)
        if not self.mps_share:
            problem = MPS_DISABLED
        if not problem:
            root = self._run_folder(agent_id, home) / "mps"
            mps = MpsServers(root, share, has_own_shm=has_own_shm)
            problem = mps.configuration_problem()
        return GpuRules(
            engine=engine,
            minimum=Level(self.minimum_enforcement),
            mps=None if problem else mps,
            mps_disabled_reason=problem,
            may_set_mode=self.set_compute_mode,
            watchdog_disabled_reason=(
                "AgentApp.device_excess is warn: sessions over their share are not stopped"
                if excess is Action.WARN
                else ""
            ),
        )

    def _run_folder(self, agent_id: str, home: Path) -> Path:
        if self.run_folder:
            return Path(self.run_folder).absolute()
        return Path("/run/bai-hub") / agent_id if os.geteuid() == 0 else home.absolute() / "run"

    def _mps_requirements(self, engine: str) -> tuple[str, bool]:
        """Return why MPS cannot be used, and whether its daemon needs a separate ``/dev/shm``."""
        if problem := program_problem():
            return problem, False
        # Isolated sessions do not see the machine's /dev/shm, through which MPS clients communicate
        # with the daemon.
        is_isolated = engine == "docker" or bubblewrap_problem() is None
        if is_isolated and os.geteuid() != 0:
            return "only an agent that runs as root can share memory with isolated sessions", False
        return "", is_isolated
