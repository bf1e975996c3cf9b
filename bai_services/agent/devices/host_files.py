"""The machine's files for device kinds: ``/sys``, ``/dev`` and the output of vendors' tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND_SECONDS = 5.0
INDEX = "{i}"


class ToolFailed(Exception):
    """A vendor's tool exists but gave no readable answer."""


@dataclass(frozen=True, slots=True)
class Match:
    """A path that matched a pattern, and the number in its name."""

    index: int
    path: str


@dataclass(frozen=True, slots=True)
class HostFiles:
    """Reads below ``root``, which is ``/`` except in tests; paths in and out do not contain it."""

    root: Path = Path("/")

    def find(self, pattern: str) -> list[Match]:
        """Return the paths that match ``pattern``, by number.

        ``{i}`` stands for the device's number, ``*`` for any text within one part of the path.
        Matches of a pattern without ``{i}`` are numbered in order.
        """
        expression = re.escape(pattern).replace(re.escape(INDEX), r"(\d+)").replace(r"\*", "[^/]*")
        found: list[Match] = []
        for place in sorted(self.root.glob(pattern.replace(INDEX, "[0-9]*").lstrip("/"))):
            path = f"/{place.relative_to(self.root)}"
            match = re.fullmatch(expression, path)
            if match is not None:
                index = int(match[1]) if INDEX in pattern else len(found)
                found.append(Match(index, path))
        return sorted(found, key=lambda m: m.index)

    def paths(self, pattern: str, index: int) -> list[str]:
        """Return the paths of the device with this number; ``{i}`` is replaced, ``*`` matches."""
        # So that the pattern for device 1 does not match device 10.
        number = rf"{index}(?!\d)"
        expression = re.escape(pattern).replace(re.escape(INDEX), number).replace(r"\*", "[^/]*")
        places = self.root.glob(pattern.replace(INDEX, str(index)).lstrip("/"))
        paths = [f"/{place.relative_to(self.root)}" for place in sorted(places)]
        return [path for path in paths if re.fullmatch(expression, path)]

    def read(self, path: str) -> str | None:
        """Return a file's text without surrounding whitespace; None if it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").strip()
        except OSError:
            return None

    def target(self, path: str) -> str | None:
        """Return the last part of a link's target, which for a device is its bus address."""
        place = self.root / path.lstrip("/")
        # A PCI device has a file ``device`` with its number where others have the link.
        return place.resolve().name if place.is_dir() else None

    def ask_json(self, command: Sequence[str]) -> Any:
        """Return the JSON that a vendor's tool prints; None if there is no such tool.

        Raises
        ------
        ToolFailed
            As `ask`, and if it prints something else.
        """
        text = self.ask(command)
        if text is None:
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            raise ToolFailed(f"{' '.join(command)} printed invalid JSON: {error}") from error

    def ask(self, command: Sequence[str]) -> str | None:
        """Return the output of a vendor's tool; None if there is no such tool.

        Raises
        ------
        ToolFailed
            If the tool cannot be run, fails or takes too long.
        """
        program = shutil.which(command[0])
        if program is None:
            return None
        words = " ".join(command)
        try:
            done = subprocess.run(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ToolFailed(f"{words} gave no answer in {COMMAND_SECONDS:g} s") from None
        except OSError as error:
            raise ToolFailed(f"{words} cannot be run: {error}") from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
            raise ToolFailed(f"{words} ended with {done.returncode} and said {said[0]!r}")
        return done.stdout


def pointed(data: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901), None if there is none."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(data, list):
            data = data[int(name)] if name.isdigit() and int(name) < len(data) else None
        elif isinstance(data, dict):
            data = data.get(name)
        else:
            return None
    return data
