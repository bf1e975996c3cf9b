"""Facts that a probe finds in an image without the session runtime, and the environment of sessions
with such an image.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ..folders.mounts import HOME
from .image_labels import MIN_CUDA, PREFIX

# Directory of the platform's parts in session images, and their mount path in other images.
PARTS = "/opt/bai"
RUNTIME_PATH = PREFIX + "runtime-path"
ACCELERATORS = PREFIX + "accelerators"
OWN_PYTHON = f"{PARTS}/bin/python"
# For images without a shell: the commands of busybox, and its shell.
BUSYBOX_COMMANDS = f"{PARTS}/rt/busybox"
BUSYBOX_SHELL = f"{BUSYBOX_COMMANDS}/sh"
ENTRYPOINT = (OWN_PYTHON, "-I", "-m", "bai_labext.image_entry")
PROBE = (OWN_PYTHON, "-I", "-m", "bai_labext.image_probe")
# Folder for packages that users install; unlike the home folder, it is part of a commit.
CUSTOM = "/opt/custom"
USER = "work"

# Longest accepted output of a probe.
MAX_PROBE_BYTES = 256 * 1024
MAX_ACCOUNTS = 500
MAX_TEXT = 255
OLDEST_PYTHON = (3, 9)
# Versions for which the runtime image has packages of the notebook kernel.
NEWEST_KERNEL_PYTHON = (3, 14)

_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,3})(\.[0-9]{1,3})?[a-z0-9+]{0,16}")
_REQUIRED_CUDA = re.compile(r"\bcuda>=([0-9]{1,2}\.[0-9]{1,2})\b")
_CUDA = re.compile(r"([0-9]{1,2}\.[0-9]{1,2})(\.[0-9]{1,4}){0,2}")
_NGC_LABELS = ("com.nvidia.build.id", "com.nvidia.build.ref")


@dataclass(frozen=True, slots=True)
class ProbedImage:
    """Facts of an image. ``python`` is "" if the image has no Python that can run notebooks.

    ``libc``: C library of that Python, ``glibc`` or ``musl``. ``shell`` is "" if the image has no
    shell. ``passwd`` and ``group``: the account files without malformed lines.
    """

    python: str = ""
    python_version: str = ""
    libc: str = "glibc"
    has_ipykernel: bool = False
    has_jupyterlab: bool = False
    shell: str = ""
    passwd: tuple[str, ...] = ()
    group: tuple[str, ...] = ()


def needs_parts(labels: Mapping[str, str]) -> bool:
    """Return whether the platform's parts must be mounted in an image with these labels."""
    return labels.get(RUNTIME_PATH) != OWN_PYTHON


def parse_probe(text: str) -> ProbedImage:
    """Parse the output of a probe, which the image may have forged.

    Raises
    ------
    ValueError
        If the text is too long or has another format.
    """
    if len(text) > MAX_PROBE_BYTES:
        raise ValueError("the output of the probe is too long")
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("the output of the probe is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("the output of the probe is not an object")
    version = _text(found.get("python_version"))
    python = _path(found.get("python"))
    if not python or python_number(version) < OLDEST_PYTHON:
        python = version = ""
    return ProbedImage(
        python=python,
        python_version=version,
        libc="musl" if found.get("libc") == "musl" else "glibc",
        has_ipykernel=bool(python) and found.get("has_ipykernel") is True,
        has_jupyterlab=bool(python) and found.get("has_jupyterlab") is True,
        shell=_path(found.get("shell")),
        passwd=_accounts(found.get("passwd"), 7),
        group=_accounts(found.get("group"), 4),
    )


def python_number(version: str) -> tuple[int, int]:
    """Return major and minor number of a Python version; (0, 0) if it is malformed."""
    match = _VERSION.fullmatch(version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def session_shell(facts: ProbedImage) -> str:
    return facts.shell or BUSYBOX_SHELL


def account_files(facts: ProbedImage, uid: int, gid: int) -> tuple[str, str]:
    """Return /etc/passwd and /etc/group of a session: the entries of the image, and the session's
    user.

    Entries of the image with the same id or name are replaced.
    """
    entry = f"{USER}:x:{uid}:{gid}::{HOME}:{session_shell(facts)}"
    others = [
        line
        for line in facts.passwd
        if line.split(":")[0] != USER and line.split(":")[2] != str(uid)
    ]
    # Put this entry first, because sshd and most programs use the first entry with an id.
    passwd = [entry, *others]
    groups = [
        line
        for line in facts.group
        if line.split(":")[0] != USER and line.split(":")[2] != str(gid)
    ]
    groups = [f"{USER}:x:{gid}:", *groups]
    return "".join(f"{line}\n" for line in passwd), "".join(f"{line}\n" for line in groups)


def session_environ(facts: ProbedImage, image_environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a session of such an image."""
    environ = {"SHELL": session_shell(facts), "PYTHONUSERBASE": CUSTOM}
    if not image_environ.get("LANG"):
        environ["LANG"] = "C.UTF-8"
    path = [image_environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin", f"{CUSTOM}/bin"]
    if not facts.shell:
        path.append(BUSYBOX_COMMANDS)
    environ["PATH"] = ":".join(path)
    if facts.python:
        major, minor = python_number(facts.python_version)
        environ["BAI_IMAGE_PYTHON"] = facts.python
        if not facts.has_ipykernel and (major, minor) <= NEWEST_KERNEL_PYTHON:
            packages = f"{PARTS}/kernels/{facts.libc}-{major}.{minor}"
            environ["BAI_KERNEL_PACKAGES"] = packages
        elif not facts.has_ipykernel:
            del environ["BAI_IMAGE_PYTHON"]  # notebooks run with the Python of the platform
    return environ


def notices_of(facts: ProbedImage) -> list[str]:
    """Return notices for the owner of a session about the missing parts of its image."""
    if "BAI_IMAGE_PYTHON" not in session_environ(facts, {}):
        oldest = ".".join(map(str, OLDEST_PYTHON))
        newest = ".".join(map(str, NEWEST_KERNEL_PYTHON))
        return [
            f"the image has no Python {oldest} to {newest}; notebooks run with the Python of the "
            "platform and cannot import packages of the image"
        ]
    return []


def is_ngc(environ: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether an image is from NVIDIA's catalog NGC."""
    if "NVIDIA_PRODUCT_NAME" in environ or "NVIDIA_BUILD_ID" in environ:
        return True
    return any(name in labels for name in _NGC_LABELS)


def cuda_requirement(environ: Mapping[str, str]) -> str:
    """Return the CUDA version that the driver must support, such as "12.4"; "" if unknown.

    The version comes from ``NVIDIA_REQUIRE_CUDA``, or else from the image's CUDA libraries.
    """
    if match := _REQUIRED_CUDA.search(environ.get("NVIDIA_REQUIRE_CUDA", "")[:MAX_TEXT]):
        return match[1]
    match = _CUDA.fullmatch(environ.get("CUDA_VERSION", "")[:MAX_TEXT])
    return match[1] if match else ""


def derived_labels(environ: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of an image, and labels that are derived from its environment variables.

    Labels of the platform in the image take precedence.
    """
    version = cuda_requirement(environ)
    if not version and not is_ngc(environ, labels):
        return dict(labels)
    derived = {ACCELERATORS: "cuda"}
    if version:
        derived[MIN_CUDA] = version
    return {**derived, **labels}


def parse_environ(entries: Any) -> dict[str, str]:
    """Return the variables of an image's configuration; malformed entries are dropped."""
    environ: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else ():
        name, separator, value = entry.partition("=") if isinstance(entry, str) else ("", "", "")
        if name and separator and "\0" not in entry and len(entry) <= MAX_PROBE_BYTES:
            environ[name] = value
    return environ


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= MAX_TEXT else ""


def _path(value: Any) -> str:
    """Return an absolute path of printable characters, else ""."""
    text = _text(value)
    is_path = text.startswith("/") and text.isprintable() and ":" not in text
    return text if is_path and ".." not in PurePosixPath(text).parts else ""


def _accounts(value: Any, fields: int) -> tuple[str, ...]:
    """Return the well-formed lines of an account file with that number of fields."""
    if not isinstance(value, list):
        return ()
    lines = [line for line in value[:MAX_ACCOUNTS] if isinstance(line, str)]
    return tuple(
        line
        for line in lines
        if len(line) <= 4 * MAX_TEXT
        and line.isprintable()
        and line.count(":") == fields - 1
        and line.split(":")[0]
        and line.split(":")[2].isascii()
        and line.split(":")[2].isdecimal()
    )
