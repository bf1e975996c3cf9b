"""Cluster sessions: their network, the launch plans of their kernels, and their end."""

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

from bai_services.core.errors import Unavailable
from bai_services.core.sessions.kernel_group import KernelName, cluster_environ
from bai_services.core.sessions.launch_plan import Injection, LaunchPlan
from bai_services.db.sessions.kernels import KernelAgent
from bai_services.db.sessions.rows import KernelRow, SessionKernels

# What sub kernels run: an SSH server for the main kernel if the image has one, else nothing. In
# both cases the process stays until it receives SIGTERM or SIGINT.
SUB_SCRIPT = """
PATH="$PATH:/usr/sbin:/sbin"
trap 'exit 0' TERM INT
if [ -r /opt/bai-cluster/sshd_config ] && command -v sshd >/dev/null; then
  "$(command -v sshd)" -D -e -f /opt/bai-cluster/sshd_config &
else
  echo "no sshd here: the main kernel cannot log in to this one"
fi
while :; do sleep 3600 & wait "$!"; done
"""
SUB_COMMAND = ("/bin/sh", "-c", SUB_SCRIPT)


def cluster_of(view: SessionKernels) -> dict[str, Any] | None:
    """Return what an agent needs to know of a cluster session; None with one kernel."""
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
    beside = [k.id for k in view.kernels if k.agent_id == kernel.agent_id]
    return cluster_environ(
        KernelName(kernel.role, kernel.index, kernel.hostname),
        [k.hostname for k in view.kernels],
        view.row.cluster_mode,
        beside.index(kernel.id),
    )


def sub_plans(
    view: SessionKernels, main: LaunchPlan, places: Mapping[str, KernelAgent]
) -> tuple[LaunchPlan, ...]:
    """Return the launch plans of the sub kernels; ``main`` is the plan of the main kernel.

    Raises
    ------
    Unavailable
        If one of their agents is not alive.
    """
    plans = []
    for kernel in view.kernels[1:]:
        place = places.get(kernel.id)
        if place is None or place.agent_status != "ALIVE":
            agent = kernel.agent_id or "of a kernel"
            raise Unavailable(
                f"agent {agent} does not answer; the session starts when it is back",
                session_id=view.row.id,
                agent=agent,
            )
        marks = {"BAI_KERNEL_ID": kernel.id, "BAI_AGENT_ID": place.agent_id}
        # Only the main kernel runs the command of a batch session.
        shared = {k: v for k, v in main.environ.items() if k != "BAI_STARTUP_COMMAND"}
        labels = {"bai.kernel-id": kernel.id, "bai.agent-id": place.agent_id}
        plans.append(
            replace(
                main,
                kernel_id=kernel.id,
                endpoint=place.endpoint,
                agent_id=place.agent_id,
                command=SUB_COMMAND,
                hostname=kernel.hostname,
                environ={**shared, **environ_of(view, kernel), **marks},
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
