"""Access of device kinds to the machine: files, such as those in ``/sys``, and vendor tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOL_TIMEOUT_SECONDS = 5.0
INDEX = "{i}"


class ToolFailed(Exception):
    """A vendor tool is installed, but it failed or its output cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Match:
    """A path that matched a pattern, and its device number."""

    index: int
    path: str


@dataclass(frozen=True, slots=True)
class HostAccess:
    """Reads files below ``root``, which is ``/`` except in tests, and runs vendor tools.

    Paths in arguments and results do not include ``root``.
    """

    root: Path = Path("/")

    def find(self, pattern: str) -> list[Match]:
        """Return the paths that match ``pattern``, sorted by device number.

        ``{i}`` matches a device number, ``*`` any text within one component of the path. Matches of
        a pattern without ``{i}`` are numbered in sorted order.
        """
        expression = re.escape(pattern).replace(re.escape(INDEX), r"(\d+)").replace(r"\*", "[^/]*")
        matches: list[Match] = []
        for host_path in sorted(self.root.glob(pattern.replace(INDEX, "[0-9]*").lstrip("/"))):
            path = f"/{host_path.relative_to(self.root)}"
            match = re.fullmatch(expression, path)
            if match is not None:
                index = int(match[1]) if INDEX in pattern else len(matches)
                matches.append(Match(index, path))
        return sorted(matches, key=lambda m: m.index)

    def paths(self, pattern: str, index: int) -> list[str]:
        """Return the sorted paths that match ``pattern`` with ``{i}`` replaced by ``index``."""
        # No digit may follow, so that the pattern for device 1 does not match device 10.
        number = rf"{index}(?!\d)"
        expression = re.escape(pattern).replace(re.escape(INDEX), number).replace(r"\*", "[^/]*")
        host_paths = self.root.glob(pattern.replace(INDEX, str(index)).lstrip("/"))
        paths = [f"/{host_path.relative_to(self.root)}" for host_path in sorted(host_paths)]
        return [path for path in paths if re.fullmatch(expression, path)]

    def read(self, path: str) -> str | None:
        """Return a file's text without surrounding whitespace; None if it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").strip()
        except OSError:
            return None

    def link_target_name(self, path: str) -> str | None:
        """Return the name of the directory that a link leads to; None if there is no directory.

        For the ``device`` link of a device in ``/sys``, the name is the bus address.
        """
        host_path = self.root / path.lstrip("/")
        # In the directory of a PCI device, ``device`` is a file that contains the PCI device ID,
        # not a link.
        return host_path.resolve().name if host_path.is_dir() else None

    def run_json_tool(self, command: Sequence[str]) -> Any:
        """Return the JSON that a vendor tool prints; None if the tool is not installed.

        Raises
        ------
        ToolFailed
            If ``run_tool`` raises it, or the output is not valid JSON.
        """
        text = self.run_tool(command)
        if text is None:
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            raise ToolFailed(f"{' '.join(command)} printed invalid JSON: {error}") from error

    def run_tool(self, command: Sequence[str]) -> str | None:
        """Return the output of a vendor tool; None if the tool is not installed.

        Raises
        ------
        ToolFailed
            If the tool cannot be run, fails or takes too long.
        """
        program = shutil.which(command[0])
        if program is None:
            return None
        command_line = " ".join(command)
        try:
            done = subprocess.run(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TOOL_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ToolFailed(
                f"{command_line} did not finish within {TOOL_TIMEOUT_SECONDS:g} s"
            ) from None
        except OSError as error:
            raise ToolFailed(f"{command_line} cannot be run: {error}") from error
        if done.returncode:
            raise ToolFailed(f"{command_line} {describe_exit(done)}")
        return done.stdout


def describe_exit(done: subprocess.CompletedProcess[str]) -> str:
    """Return how a command failed: its exit code and the last line of its output."""
    lines = (done.stderr or done.stdout).strip().splitlines()
    output = f": {lines[-1]}" if lines else " without output"
    return f"exited with code {done.returncode}{output}"


def json_pointer(data: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901); None if the data has no such value."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(data, list):
            data = data[int(name)] if name.isdigit() and int(name) < len(data) else None
        elif isinstance(data, dict):
            data = data.get(name)
        else:
            return None
    return data
