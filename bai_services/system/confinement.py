"""Limit the resources and the privileges of the current process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Mapping

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWNET = 0x40000000
# The kernel sends SIGXCPU at the soft limit of CPU time, and SIGKILL at the hard limit.
CPU_GRACE_SECONDS = 5


def limit_resources(limits: Mapping[int, int]) -> None:
    """Set resource limits (``resource.RLIMIT_…``) and disable core dumps.

    A limit above the current hard limit is lowered to the hard limit. SIGXCPU ends
    a process that reaches its limit of CPU time, so SIGKILL normally has another cause, for example
    too little memory.
    """
    for kind, value in {**limits, resource.RLIMIT_CORE: 0}.items():
        _, hard = resource.getrlimit(kind)
        new_hard = value + CPU_GRACE_SECONDS if kind == resource.RLIMIT_CPU else value
        if hard != resource.RLIM_INFINITY:
            new_hard = min(new_hard, hard)
        resource.setrlimit(kind, (min(value, new_hard), new_hard))


def drop_privileges(niceness: int) -> None:
    """Forbid new privileges and the network, lower the CPU priority, and die with the parent.

    A step that fails is ignored, because not every system allows every step.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    die_with_parent()
    libc.unshare(_CLONE_NEWNET)
    with contextlib.suppress(OSError):
        os.nice(niceness)


def die_with_parent() -> None:
    """Forbid new privileges, also to child processes; die with the parent."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def outlive_parent() -> None:
    """Let this process continue when its parent ends, despite ``drop_privileges``."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
