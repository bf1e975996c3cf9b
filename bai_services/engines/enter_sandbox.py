"""``python -I -S enter_sandbox.py PID FD``: run a command in the bubblewrap sandbox of a process.

``PID`` is a process in the sandbox. ``FD`` is a file with JSON: ``command``, ``environ`` and
``folder``, the working directory. The command has no capabilities and cannot obtain any. This
process exits with the exit code of the command. It imports only the standard library, before it
enters the sandbox, and has one thread: the kernel denies a process with several threads to enter a
user namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import sys

# ioctl(2) of namespaces: the user namespace that owns another namespace.
NS_GET_USERNS = 0xB701
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522
MAX_CAPABILITIES = 64
# The user namespace of the sandbox is entered last, because it has no rights on the others. The
# network is that of the host.
NAMESPACES = ("ipc", "uts", "cgroup", "pid", "mnt")

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    pid, settings_file = sys.argv[1:]
    with open(int(settings_file)) as file:
        settings = json.load(file)
    enter(pid)
    # The process id namespace applies to children only.
    child = os.fork()
    if child == 0:
        try:
            drop_privileges()
            os.chdir(settings["folder"])
            command = settings["command"]
            os.execve(command[0], command, settings["environ"])
        finally:
            os._exit(127)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: os.kill(child, n))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256


def enter(pid: str) -> None:
    """Enter the namespaces of a process, including the user namespace."""
    folder = f"/proc/{pid}/ns"
    descriptors = {name: os.open(f"{folder}/{name}", os.O_RDONLY) for name in NAMESPACES}
    own_user = os.stat("/proc/self/ns/user").st_ino
    user = os.open(f"{folder}/user", os.O_RDONLY)
    # Bubblewrap may create two nested user namespaces. The outer one owns the other namespaces.
    owner = fcntl.ioctl(descriptors["mnt"], NS_GET_USERNS)
    entered = {own_user}
    if os.fstat(owner).st_ino not in entered:
        _set_namespace(owner)
        entered.add(os.fstat(owner).st_ino)
    for name, descriptor in descriptors.items():
        if os.fstat(descriptor).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            _set_namespace(descriptor)
    if os.fstat(user).st_ino not in entered:
        _set_namespace(user)


def drop_privileges() -> None:
    """Give up all capabilities; no program can obtain them again."""
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(_libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
    for capability in range(MAX_CAPABILITIES):
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # the kernel has no further capabilities
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()))


def _set_namespace(descriptor: int) -> None:
    _check(_libc.setns(descriptor, 0))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    sys.exit(main())
