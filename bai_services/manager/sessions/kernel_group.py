"""Cluster sessions: network, environment and launch plans of their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from bai_services.core.cluster.model import AgentStatus
from bai_services.core.errors import Unavailable
from bai_services.core.sessions.kernel_group import KernelName, cluster_environ
from bai_services.core.sessions.launch_plan import Injection, LaunchPlan
from bai_services.db.sessions.kernels import KernelAgent
from bai_services.db.sessions.rows import KernelRow, SessionKernels

# Command of the sub kernels. It starts an SSH server, for logins from the main kernel, if the image
# contains sshd. It runs until it receives SIGTERM or SIGINT.
SUB_SCRIPT = """
PATH="$PATH:/usr/sbin:/sbin"
trap 'exit 0' TERM INT
if [ -n "$BAI_SETUP_FILE" ]; then
  python3 -I -m bai_labext.session_setup /opt/bai-cluster/sshd_config || exit
fi
if [ -r /opt/bai-cluster/sshd_config ] && command -v sshd >/dev/null; then
  "$(command -v sshd)" -D -e -f /opt/bai-cluster/sshd_config &
else
  echo "this image has no sshd: the main kernel cannot log in to this kernel"
fi
while :; do sleep 3600 & wait "$!"; done
"""
SUB_COMMAND = ("/bin/sh", "-c", SUB_SCRIPT)


def cluster_of(view: SessionKernels) -> dict[str, Any] | None:
    """Return the ``cluster`` field of a work item; None for a session with one kernel."""
    if len(view.kernels) == 1:
        return None
    return {
        "network": f"bai-c-{view.row.id}",
        "is_spread": len({kernel.agent_id for kernel in view.kernels}) > 1,
    }


def environ_of(view: SessionKernels, kernel: KernelRow) -> dict[str, str]:
    """Return the cluster environment of one kernel; empty for a session with one kernel."""
    if len(view.kernels) == 1:
        return {}
    on_same_agent = [k.id for k in view.kernels if k.agent_id == kernel.agent_id]
    return cluster_environ(
        KernelName(kernel.role, kernel.index, kernel.hostname),
        [k.hostname for k in view.kernels],
        view.row.cluster_mode,
        on_same_agent.index(kernel.id),
    )


def sub_plans(
    view: SessionKernels, main: LaunchPlan, placements: Mapping[str, KernelAgent]
) -> tuple[LaunchPlan, ...]:
    """Return the launch plans of the sub kernels; ``main`` is the plan of the main kernel.

    Raises
    ------
    Unavailable
        If the agent of a sub kernel is not alive.
    """
    plans = []
    for kernel in view.kernels[1:]:
        placement = placements.get(kernel.id)
        if placement is None or placement.agent_status != AgentStatus.ALIVE:
            agent = f"agent {kernel.agent_id}" if kernel.agent_id else "the agent of a kernel"
            raise Unavailable(
                f"{agent} is not responding; the session starts when the agent is back",
                session_id=view.row.id,
                agent=kernel.agent_id,
            )
        ids = {"BAI_KERNEL_ID": kernel.id, "BAI_AGENT_ID": placement.agent_id}
        # Only the main kernel runs the command of a batch session.
        shared = {k: v for k, v in main.environ.items() if k != "BAI_STARTUP_COMMAND"}
        labels = {"bai.kernel-id": kernel.id, "bai.agent-id": placement.agent_id}
        plans.append(
            replace(
                main,
                kernel_id=kernel.id,
                endpoint=placement.endpoint,
                agent_id=placement.agent_id,
                command=SUB_COMMAND,
                hostname=kernel.hostname,
                environ={**shared, **environ_of(view, kernel), **ids},
                injection=Injection.from_json(kernel.injection or {}),
                labels={**main.labels, **labels},
            )
        )
    return tuple(plans)


def new_cluster_key(session_id: str) -> dict[str, str]:
    """Return a new SSH key pair, in OpenSSH format, for one start of a cluster session."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return {"private": private.decode(), "public": f"{public.decode()} {session_id}"}
