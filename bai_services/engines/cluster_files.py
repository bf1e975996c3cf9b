"""Files and variables for distributed programs in the containers of a cluster session."""

from __future__ import annotations

import io
import tarfile
import time

from bai_services.core.sessions.kernel_group import MAIN_HOST
from bai_services.core.sessions.launch_plan import LaunchPlan

FOLDER = "opt/bai-cluster"
PORT = 2200
HOSTFILE = f"/{FOLDER}/hostfile"
# Port of the main kernel at which processes of PyTorch meet; torchrun's default.
MASTER_PORT = 29500
# Docker's name for a container's interface to the network of the cluster session. A container on an
# overlay network also has an interface to a bridge of its machine, which the others cannot reach.
INTERFACE = "eth0"
# Variables of the session that a login shell on another kernel also has.
_CLUSTER_PREFIXES = (
    "BAI_",
    "GLOO_",
    "MASTER_",
    "NCCL_",
    "OMPI_MCA_",
    "PET_",
    "PRTE_MCA_",
)


def archive(plan: LaunchPlan) -> bytes:
    """Return a tar archive with host file, key pair and SSH configuration, to unpack at a
    container's root.

    The key pair belongs to one cluster session and is removed with its containers. It is both host
    key and login key, so that clients know the host key before the first connection.
    """
    private, public = plan.cluster_key["private"], plan.cluster_key["public"]
    files = {
        HOSTFILE.removeprefix("/"): (_hostfile(plan), 0o644),
        f"{FOLDER}/id_ed25519": (private, 0o600),
        f"{FOLDER}/authorized_keys": (f"{public}\n", 0o644),
        f"{FOLDER}/known_hosts": (f"* {' '.join(public.split()[:2])}\n", 0o644),
        f"{FOLDER}/sshd_config": (_sshd_config(plan), 0o600),
        "etc/ssh/ssh_config.d/50-bai-cluster.conf": (_ssh_config(plan), 0o644),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, (text, mode) in files.items():
            data = text.encode()
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), mode, int(time.time())
            if name.startswith(FOLDER):
                info.uid, info.gid = plan.uid, plan.gid
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def variables(plan: LaunchPlan) -> dict[str, str]:
    """Return variables for torchrun, Open MPI, NCCL and Gloo; {} for a session with one kernel.

    A variable that the user has set is not in the result.
    """
    if not plan.is_cluster:
        return {}
    main, size = MAIN_HOST, str(len(plan.cluster_hosts))
    found = {
        "MASTER_ADDR": main,
        "MASTER_PORT": str(MASTER_PORT),
        # Defaults of torchrun's options: --nnodes, --node-rank, --master-addr, --master-port.
        "PET_NNODES": size,
        "PET_NODE_RANK": plan.environ.get("BAI_CLUSTER_INDEX", "0"),
        "PET_MASTER_ADDR": main,
        "PET_MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "NCCL_SOCKET_IFNAME": INTERFACE,
        # Open MPI up to version 4, and from version 5 (PRRTE).
        "OMPI_MCA_orte_default_hostfile": HOSTFILE,
        "PRTE_MCA_prte_default_hostfile": HOSTFILE,
        "OMPI_MCA_btl_tcp_if_include": INTERFACE,
        "OMPI_MCA_oob_tcp_if_include": INTERFACE,
        "PRTE_MCA_oob_tcp_if_include": INTERFACE,
    }
    return {name: text for name, text in found.items() if name not in plan.environ}


def _hostfile(plan: LaunchPlan) -> str:
    """Return a host file of Open MPI and DeepSpeed.

    A kernel has a slot for each of its whole devices, otherwise for each of its cores.
    """
    devices = sum(amount for slot, amount in plan.slots.items() if slot.endswith(".device"))
    slots = max(1, devices or plan.slots.get("cpu", 0) // 1000)
    return "".join(f"{host} slots={slots}\n" for host in plan.cluster_hosts)


def _ssh_config(plan: LaunchPlan) -> str:
    return (
        f"Host {' '.join(plan.cluster_hosts)}\n"
        f"  Port {PORT}\n"
        f"  IdentityFile /{FOLDER}/id_ed25519\n"
        "  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile /{FOLDER}/known_hosts\n"
        "  HostKeyAlgorithms ssh-ed25519\n"
        "  StrictHostKeyChecking yes\n"
    )


def _sshd_config(plan: LaunchPlan) -> str:
    # sshd does not pass the container's environment to login shells by itself.
    environ = {k: plan.environ.get(k, v) for k, v in plan.injection.defaults.items()}
    environ |= variables(plan)
    environ |= {k: v for k, v in plan.environ.items() if k.startswith(_CLUSTER_PREFIXES)}
    environ |= plan.injection.environ
    settings = [f'{k}="{v}"' for k, v in sorted(environ.items()) if not set(v) & set('"\\\n\r')]
    return (
        f"Port {PORT}\n"
        f"HostKey /{FOLDER}/id_ed25519\n"
        f"AuthorizedKeysFile /{FOLDER}/authorized_keys\n"
        "AuthenticationMethods publickey\n"
        "PidFile none\n"
        "StrictModes no\n"
        "UsePAM no\n"
        f"SetEnv {' '.join(settings)}\n"
    )
