"""Start arguments of apps, chosen by users: validated, and stored for the next start."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bai_labext.apps.catalogue import App, Argument, ArgumentKind
from bai_services.core.errors import InvalidRequest
from bai_services.core.folders.mounts import HOME

MAX_CHARACTERS = 1024


class Arguments:
    """Arguments of all apps, stored below the home of a session.

    They are stored in a file, so that an app started by opening its address gets them as well.
    """

    def __init__(self, environ: Mapping[str, str], home: str) -> None:
        self._environ = environ
        self._home = home
        self._folder = _persistent_folder(environ, home)

    def of(self, app: App) -> dict[str, str]:
        """Return the start arguments of an app: the last chosen ones, else its defaults."""
        kept = self._kept(app)
        return {each.name: kept.get(each.name) or self._default(each) for each in app.arguments}

    def choose(self, app: App, wanted: Mapping[str, Any]) -> dict[str, str]:
        """Validate and store arguments for the next starts; an empty text restores the default.

        Raises
        ------
        InvalidRequest
            If the app has no such argument, or a value is invalid.
        """
        known = {each.name: each for each in app.arguments}
        if unknown := sorted(set(wanted) - set(known)):
            takes = ", ".join(known) or "none"
            raise InvalidRequest(
                f"{app.title} has no argument {unknown[0]!r}; it takes {takes}", field=unknown[0]
            )
        chosen = {**self._kept(app)}
        for name, value in wanted.items():
            chosen[name] = self._checked(app, known[name], value) if value != "" else ""
        file = self._file(app)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Replaced in one step, so that readers see either the old or the new arguments.
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps(chosen))
        unfinished.replace(file)
        return self.of(app)

    def check(self, app: App) -> None:
        """Return if an app can be started with its current arguments.

        Raises
        ------
        InvalidRequest
            If a required one is missing, or one is no longer valid.
        """
        for name, value in self.of(app).items():
            argument = next(each for each in app.arguments if each.name == name)
            if not value:
                raise InvalidRequest(
                    f"{app.title} needs {argument.title.lower()!r}: the path of a "
                    f"{argument.kind} in this session",
                    field=name,
                )
            self._checked(app, argument, value)

    def _checked(self, app: App, argument: Argument, value: object) -> str:
        def wrong(why: str) -> InvalidRequest:
            return InvalidRequest(
                f"{app.title}, {argument.title.lower()} {str(value)[:200]!r}: {why}",
                field=argument.name,
            )

        if not isinstance(value, str) or len(value) > MAX_CHARACTERS:
            raise wrong(f"it must be a path of at most {MAX_CHARACTERS} characters")
        if not value.isprintable() or value != value.strip():
            raise wrong("a path must not contain control characters, or start or end with spaces")
        # Never a path that begins with a dash, which an app would read as an option.
        relative = value.removeprefix("~/")
        path = Path(os.path.normpath(Path(self._home) / relative))
        if argument.kind is ArgumentKind.FILE and not path.is_file():
            raise wrong("there is no such file")
        if argument.kind is ArgumentKind.FOLDER:
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise wrong(f"this is no folder, and cannot be created: {error.strerror}") from None
        return str(path)

    def temporary(self, app: App) -> list[str]:
        """Return the arguments whose default location is deleted with the session: no folder is
        mounted.
        """
        kept = self._kept(app)
        return [
            each.name
            for each in app.arguments
            if "{folder}" in each.default
            and not kept.get(each.name)
            and not self._environ.get(each.variable, "")
            and not self._folder
        ]

    def _default(self, argument: Argument) -> str:
        named = self._environ.get(argument.variable, "") if argument.variable else ""
        return named or argument.default.replace("{folder}", self._folder or self._home)

    def _kept(self, app: App) -> dict[str, str]:
        try:
            kept = json.loads(self._file(app).read_text())
        except (OSError, ValueError):
            return {}
        if not isinstance(kept, dict):
            return {}
        return {name: value for name, value in kept.items() if isinstance(value, str)}

    def _file(self, app: App) -> Path:
        return Path(self._home) / ".local" / "state" / "bai" / f"{app.name}.json"


def _persistent_folder(environ: Mapping[str, str], home: str) -> str:
    """Return the first mounted folder that the session may write to; empty if there is none."""
    for place in filter(None, environ.get("BAI_FOLDERS", "").split(":")):
        # Without a sandbox the home is elsewhere, and folders are symbolic links in it.
        own = Path(home) / Path(place).relative_to(HOME) if Path(place).is_relative_to(HOME) else ""
        for path in (own, place):
            if path and Path(path).is_dir():
                return str(path)
    return ""
