"""Files for SSH between the containers of a cluster session."""

from __future__ import annotations

import io
import tarfile
import time

from bai_services.core.sessions.launch_plan import LaunchPlan

FOLDER = "opt/bai-cluster"
PORT = 2200


def archive(plan: LaunchPlan) -> bytes:
    """Return a tar archive with a key pair and SSH configuration, to unpack at a container's root.

    The key pair belongs to one cluster session and is removed with its containers. It is both host
    key and login key, so that clients know the host key before the first connection.
    """
    private, public = plan.cluster_key["private"], plan.cluster_key["public"]
    files = {
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
    environ |= {k: v for k, v in plan.environ.items() if k.startswith("BAI_")}
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
