"""Start arguments of apps: validate the values that users choose, and store them."""

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
    """Start arguments of all apps, stored in files below the home folder of a session.

    A start without arguments uses the stored ones, for example when a user opens the address of an
    app.
    """

    def __init__(self, environ: Mapping[str, str], home: str) -> None:
        self._environ = environ
        self._home = home
        self._folder = _persistent_folder(environ, home)

    def of(self, app: App) -> dict[str, str]:
        """Return the start arguments of an app: those stored last, else its defaults."""
        return self._complete(app, self._stored(app))

    def validate(self, app: App, chosen: Mapping[str, Any]) -> dict[str, str]:
        """Return the start arguments that ``choose`` would return, without storing them."""
        return self._complete(app, self._merge(app, chosen))

    def choose(self, app: App, chosen: Mapping[str, Any]) -> dict[str, str]:
        """Validate and store arguments for later starts, and return all arguments of the app.

        An empty text restores the default.

        Raises
        ------
        InvalidRequest
            If the app has no such argument, or a value is invalid.
        """
        arguments = self._merge(app, chosen)
        file = self._file(app)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Atomic replacement: a concurrent reader sees either the old or the new arguments.
        part = file.with_suffix(".part")
        part.write_text(json.dumps(arguments))
        part.replace(file)
        return self._complete(app, arguments)

    def _merge(self, app: App, chosen: Mapping[str, Any]) -> dict[str, str]:
        """Validate the chosen arguments; return the stored arguments with these changes."""
        known = {each.name: each for each in app.arguments}
        if unknown := sorted(set(chosen) - set(known)):
            takes = ", ".join(known) or "none"
            raise InvalidRequest(
                f"{app.title} has no argument {unknown[0]!r}; it takes {takes}", field=unknown[0]
            )
        arguments = {**self._stored(app)}
        for name, value in chosen.items():
            arguments[name] = self._validate(app, known[name], value) if value != "" else ""
        return arguments

    def _complete(self, app: App, arguments: Mapping[str, str]) -> dict[str, str]:
        return {
            each.name: arguments.get(each.name) or self._default(each) for each in app.arguments
        }

    def check(self, app: App) -> None:
        """Check that an app can be started with its current arguments.

        Raises
        ------
        InvalidRequest
            If a required argument is missing, or one is no longer valid.
        """
        for name, value in self.of(app).items():
            argument = next(each for each in app.arguments if each.name == name)
            if not value:
                raise InvalidRequest(
                    f"{app.title} needs {argument.title.lower()!r}: the path of a "
                    f"{argument.kind} in this session",
                    field=name,
                )
            self._validate(app, argument, value)

    def _validate(self, app: App, argument: Argument, value: object) -> str:
        """Return ``value`` as an absolute path; if the argument is a folder, create it."""

        def invalid(problem: str) -> InvalidRequest:
            return InvalidRequest(
                f"{app.title}, {argument.title.lower()} {str(value)[:200]!r}: {problem}",
                field=argument.name,
            )

        if not isinstance(value, str) or len(value) > MAX_CHARACTERS:
            raise invalid(f"it must be a path of at most {MAX_CHARACTERS} characters")
        if not value.isprintable() or value != value.strip():
            raise invalid("a path must not contain control characters, or start or end with spaces")
        path = Path(self._absolute(value))
        if argument.kind is ArgumentKind.FILE and not path.is_file():
            raise invalid("there is no such file")
        if argument.kind is ArgumentKind.FOLDER:
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise invalid(f"the folder cannot be created: {error.strerror}") from None
        return str(path)

    def temporary(self, app: App) -> list[str]:
        """Return the names of the arguments whose default path is deleted with the session.

        The list is empty if a requested writable folder is mounted. An argument is left out if the
        user or an environment variable has set its path. The panel's form shows a warning if the
        list is not empty.
        """
        stored = self._stored(app)
        return [
            each.name
            for each in app.arguments
            if "{folder}" in each.default
            and not stored.get(each.name)
            and not self._environ.get(each.variable, "")
            and not self._folder
        ]

    def _default(self, argument: Argument) -> str:
        configured = self._environ.get(argument.variable, "") if argument.variable else ""
        if configured:
            return self._absolute(configured)
        return argument.default.replace("{folder}", self._folder or self._home)

    def _absolute(self, path: str) -> str:
        """Return a path in the home as an absolute path: an app would read a path that begins with
        a dash as an option.
        """
        return os.path.normpath(Path(self._home) / path.removeprefix("~/"))

    def _stored(self, app: App) -> dict[str, str]:
        try:
            stored = json.loads(self._file(app).read_text())
        except (OSError, ValueError):
            return {}
        if not isinstance(stored, dict):
            return {}
        return {name: value for name, value in stored.items() if isinstance(value, str)}

    def _file(self, app: App) -> Path:
        return Path(self._home) / ".local" / "state" / "bai" / f"{app.name}.json"


def _persistent_folder(environ: Mapping[str, str], home: str) -> str:
    """Return the first writable folder that was requested and is mounted, or ""."""
    for target in map(Path, filter(None, environ.get("BAI_FOLDERS", "").split(":"))):
        candidates = [target]
        if target.is_relative_to(HOME):
            # Without a sandbox, the home is not ``HOME``, but has symbolic links to the mounts.
            candidates.insert(0, Path(home) / target.relative_to(HOME))
        for path in candidates:
            if path.is_dir():
                return str(path)
    return ""
