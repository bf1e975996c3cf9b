"""Seccomp profile of session containers: an allow list of system calls.

A call that is not listed fails with EPERM. The default profile of older Docker engines (20.10)
allows ``io_uring`` and ``AF_VSOCK`` sockets, which expose large parts of the kernel and the
hypervisor. This profile denies both on every engine.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ENGINE_DEFAULT = "engine"

# Grouped by purpose. Docker ignores names that the architecture does not have.
ALLOWED: Mapping[str, str] = {
    "files": """
        access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat
        faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl
        fdatasync flock fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 ioctl
        lchown link linkat lseek lstat mkdir mkdirat mknod mknodat name_to_handle_at newfstatat
        open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead
        readlink readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs
        statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat
        utime utimensat utimes vmsplice write writev cachestat
    """,
    "extended file attributes": """
        fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr
        lremovexattr lsetxattr removexattr setxattr
    """,
    "waiting for events": """
        epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2
        fanotify_mark inotify_add_watch inotify_init inotify_init1 inotify_rm_watch pause poll
        ppoll pselect6 select signalfd signalfd4
    """,
    "asynchronous I/O (aio, not io_uring)": """
        io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioprio_get ioprio_set
    """,
    "memory": """
        brk madvise membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap
        mprotect mremap msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect
        remap_file_pages mseal map_shadow_stack
    """,
    "processes and threads": """
        execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake
        get_robust_list getcpu getpgid getpgrp getpid getppid getpriority getrlimit getrusage
        getsid gettid kill pidfd_open pidfd_send_signal prctl prlimit64 process_mrelease
        process_vm_readv process_vm_writev ptrace restart_syscall rseq sched_get_priority_max
        sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
        sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
        sched_yield set_robust_list set_tid_address setpgid setpriority setrlimit setsid tgkill
        tkill vfork wait4 waitid
    """,
    "signals": """
        alarm rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
        rt_sigtimedwait rt_tgsigqueueinfo sigaltstack
    """,
    "users and privileges": """
        capget capset getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid
        setfsuid setgid setgroups setregid setresgid setresuid setreuid setuid landlock_add_rule
        landlock_create_ruleset landlock_restrict_self seccomp
    """,
    "existing sockets": """
        accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg
        recvmsg sendmmsg sendmsg sendto setsockopt shutdown socketpair
    """,
    "inter-process communication": """
        mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget
        msgrcv msgsnd pipe pipe2 semctl semget semop semtimedop shmat shmctl shmdt shmget
    """,
    "time": """
        adjtimex clock_adjtime clock_getres clock_gettime clock_nanosleep getitimer gettimeofday
        nanosleep setitimer time timer_create timer_delete timer_getoverrun timer_gettime
        timer_settime timerfd_create timerfd_gettime timerfd_settime times
    """,
    "system information": "arch_prctl getrandom sysinfo uname riscv_flush_icache",
    # `socketcall` is not listed: a filter cannot read the address family behind its pointer. So
    # 32-bit programs that create sockets only with this call cannot use sockets.
    "32-bit programs": """
        _llseek _newselect arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush chown32
        clock_adjtime64 clock_getres_time64 clock_gettime64 clock_nanosleep_time64 fadvise64_64
        fchown32 fcntl64 fstat64 fstatat64 fstatfs64 ftruncate64 futex_time64 get_thread_area
        getegid32 geteuid32 getgid32 getgroups32 getresgid32 getresuid32 getuid32
        io_pgetevents_time64 ipc lchown32 lstat64 mmap2 mq_timedreceive_time64
        mq_timedsend_time64 ppoll_time64 pselect6_time64 recv recvmmsg_time64 rt_sigtimedwait_time64
        sched_rr_get_interval_time64 semtimedop_time64 send sendfile64 set_thread_area set_tls
        setfsgid32 setfsuid32 setgid32 setgroups32 setregid32 setresgid32 setresuid32 setreuid32
        setuid32 sigprocmask sigreturn stat64 statfs64 sync_file_range2 timer_gettime64
        timer_settime64 timerfd_gettime64 timerfd_settime64 truncate64 ugetrlimit
        utimensat_time64 waitpid
    """,
}
# Allowed with a capability, which sessions only get from a device or an administrator.
WITH_CAPABILITY: Mapping[str, str] = {
    "CAP_SYS_PTRACE": "kcmp pidfd_getfd process_madvise",
    "CAP_SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "CAP_SYS_CHROOT": "chroot",
    "CAP_BPF": "bpf",
    "CAP_PERFMON": "perf_event_open",
    "CAP_SYSLOG": "syslog",
    "CAP_SYS_ADMIN": """
        bpf clone3 fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree
        perf_event_open setdomainname sethostname setns syslog umount umount2 unshare
    """,
}
FAMILIES = (
    socket.AF_UNIX,
    socket.AF_INET,
    socket.AF_INET6,
    socket.AF_NETLINK,
    socket.AF_PACKET,  # the kernel requires a capability
)
# Allowed arguments of personality(): PER_LINUX, PER_LINUX32, UNAME26, PER_LINUX32 | UNAME26, and
# 0xFFFFFFFF, which only returns the current value.
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
# Mask for 32-bit arguments: a filter sees 64 bits, but the kernel ignores the upper 32.
INT = 0xFFFFFFFF
# The clone() flags CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
NEW_NAMESPACES = 0x7E020000
EPERM, ENOSYS = 1, 38
ARCHITECTURES: Mapping[str, Sequence[str]] = {
    "SCMP_ARCH_X86_64": ("SCMP_ARCH_X86",),
    "SCMP_ARCH_AARCH64": ("SCMP_ARCH_ARM",),
    "SCMP_ARCH_RISCV64": (),
}

Rule = dict[str, Any]


@cache
def own_profile() -> str:
    """Return bai-hub's profile in Docker's JSON format."""
    names = sorted({name for group in ALLOWED.values() for name in group.split()})
    sys_admin = {"caps": ["CAP_SYS_ADMIN"]}
    rules: list[Rule] = [
        _allow(names),
        *(_allow(["socket"], _equals(0, INT, family)) for family in FAMILIES),
        *(_allow(["personality"], _equals(0, INT, number)) for number in PERSONALITIES),
        {**_allow(["clone"], _equals(0, NEW_NAMESPACES, 0)), "excludes": sys_admin},
        {**_allow(["clone"]), "includes": sys_admin},
        # ENOSYS makes the C library fall back to `clone`. A filter can read the flags of `clone`,
        # but not the flags of `clone3`, which are behind a pointer.
        {
            "names": ["clone3"],
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": ENOSYS,
            "excludes": sys_admin,
        },
        *(
            {**_allow(text.split()), "includes": {"caps": [capability]}}
            for capability, text in WITH_CAPABILITY.items()
        ),
    ]
    architectures = [
        {"architecture": one, "subArchitectures": list(others)}
        for one, others in ARCHITECTURES.items()
    ]
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "archMap": architectures,
        "syscalls": rules,
    }
    return json.dumps(profile)


def security_options(setting: str) -> list[str]:
    """Return Docker's security options for the trait ``seccomp_profile``.

    Raises
    ------
    OSError, ValueError
        If the setting is the path of a file that cannot be read or is not JSON.
    """
    options = ["no-new-privileges:true"]
    if setting == ENGINE_DEFAULT:
        return options
    text = json.dumps(json.loads(Path(setting).read_text())) if setting else own_profile()
    return [*options, f"seccomp={text}"]


def _allow(names: Sequence[str], *arguments: Rule) -> Rule:
    rule: Rule = {"names": list(names), "action": "SCMP_ACT_ALLOW"}
    return {**rule, "args": list(arguments)} if arguments else rule


def _equals(index: int, mask: int, value: int) -> Rule:
    """Return the condition ``argument[index] & mask == value``."""
    return {"index": index, "value": mask, "valueTwo": int(value), "op": "SCMP_CMP_MASKED_EQ"}
