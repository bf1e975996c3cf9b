"""Validation of session requests: names, environment, resources, shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import InvalidRequest
from ..resources import CPU, MEM, ResourceSlots, format_amount

NAME_MIN, NAME_MAX = 4, 64
DEFAULT_SHARED_MEMORY = 64 * 2**20
DEFAULT_SLOTS = ResourceSlots({CPU: 1000, MEM: 2**30})

MAX_ENVIRON_VARIABLES = 100
MAX_ENVIRON_NAME = 128
MAX_ENVIRON_VALUE_BYTES = 32 * 1024
MAX_ENVIRON_TOTAL_BYTES = 128 * 1024
# Prefixes of variables that the platform sets, or that could give access to devices of other
# sessions.
RESERVED_ENVIRON = ("BAI_", "JUPYTERHUB_", "JPY_", "NVIDIA_", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_")
# Users may set these variables: the default folders of apps in the session.
APP_FOLDERS = frozenset({"BAI_TENSORBOARD_LOGDIR", "BAI_MLFLOW_STORE"})

_NAME = re.compile(r"\w[\w.-]*\w", re.ASCII)
_ENVIRON_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SUGGESTION_INPUT_CHARACTERS = 200
_HUB_NAME_MAX = 30
_HUB_SLUG_MAX = 20
_HUB_HEX = 6


def check_session_name(name: str) -> str:
    """Return ``name`` if it is a valid session name.

    Raises
    ------
    InvalidRequest
        If the name is not valid. A valid name has 4 to 64 ASCII letters, digits and ``_.-``, and
        begins and ends with a letter, digit or ``_``. The error suggests a valid name.
    """
    if not name:
        raise InvalidRequest(
            f"the name of a session cannot be empty: use {NAME_MIN} to {NAME_MAX} ASCII letters, "
            "digits and _ . -, or omit the field for a generated name",
            field="name",
            suggestion=_suggested_name(name),
        )
    if not NAME_MIN <= len(name) <= NAME_MAX or _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name[:80]!r} cannot be the name of a session: use {NAME_MIN} to {NAME_MAX} ASCII "
            f"letters, digits, and _ . - between them; for example {_suggested_name(name)}",
            field="name",
            suggestion=_suggested_name(name),
        )
    return name


def session_name_from(text: str) -> str:
    """Convert the name of a Hub server to a session name.

    Names of servers may be shorter than names of sessions: ``gpu`` becomes ``session-gpu``.

    Raises
    ------
    InvalidRequest
        If the text is empty, is too long for a session name or has invalid characters. The error
        suggests a valid name.
    """
    longer = f"session-{text}"
    if 0 < len(text) < NAME_MIN and _NAME.fullmatch(longer):
        return longer
    return check_session_name(text)


def _suggested_name(text: str) -> str:
    """Return a valid session name that is similar to ``text``."""
    text = text[:_SUGGESTION_INPUT_CHARACTERS]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.")[: NAME_MAX - len("session-")]
    name = name.strip("-.")
    return name if len(name) >= NAME_MIN else f"session-{name}".rstrip("-")


def hub_server_name(name: str, session_id: str) -> str:
    """Return the name of a session's Hub server: a slug of its name and the start of its id.

    The result has at most 30 lower-case letters, digits and single hyphens, begins with a letter
    and does not end with a hyphen.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    slug = slug if slug[:1].isalpha() else f"s-{slug}"
    slug = slug[:_HUB_SLUG_MAX].rstrip("-") or "s"
    return f"{slug}-{session_id.replace('-', '')[:_HUB_HEX]}"[:_HUB_NAME_MAX]


def check_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a session if it is valid.

    Raises
    ------
    InvalidRequest
        If a name is malformed or reserved, a value contains a NUL, or the environment is too large:
        more than 100 variables, 32 KiB per value or 128 KiB in total.
    """
    if len(environ) > MAX_ENVIRON_VARIABLES:
        raise InvalidRequest(
            f"{len(environ)} environment variables were requested; at most "
            f"{MAX_ENVIRON_VARIABLES} are allowed",
            field="environ",
        )
    total = 0
    for name, value in environ.items():
        _check_variable(name, value)
        total += len(name) + len(value.encode(errors="replace"))
    if total > MAX_ENVIRON_TOTAL_BYTES:
        raise InvalidRequest(
            f"the environment has {total} bytes; at most {MAX_ENVIRON_TOTAL_BYTES} are allowed",
            field="environ",
        )
    return dict(environ)


def _check_variable(name: str, value: str) -> None:
    if len(name) > MAX_ENVIRON_NAME or _ENVIRON_NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name[:80]!r} cannot be the name of an environment variable: use at most "
            f"{MAX_ENVIRON_NAME} letters, digits and _, and do not begin with a digit",
            field="environ",
            variable=name[:MAX_ENVIRON_NAME],
        )
    if name.startswith(RESERVED_ENVIRON) and name not in APP_FOLDERS:
        raise InvalidRequest(
            f"the environment variable {name} is reserved; names may not begin with "
            f"{', '.join(RESERVED_ENVIRON)}",
            field="environ",
            variable=name,
        )
    if "\0" in value or len(value.encode(errors="replace")) > MAX_ENVIRON_VALUE_BYTES:
        raise InvalidRequest(
            f"the value of {name} contains a NUL or has more than {MAX_ENVIRON_VALUE_BYTES} bytes",
            field="environ",
            variable=name,
        )


def fill_slots(
    requested: ResourceSlots, preset: ResourceSlots, minimum: Mapping[str, int]
) -> ResourceSlots:
    """Return the resources of a session: the request overrides the preset.

    A requested device slot replaces all slots of its family in the preset. The defaults of cpu and
    mem are the image's ``minimum``, else 1 core and 1 GiB.
    """
    families = {slot.partition(".")[0] for slot in requested if "." in slot}
    slots = {slot: n for slot, n in preset.items() if slot.partition(".")[0] not in families}
    slots.update(requested)
    for slot, default in DEFAULT_SLOTS.items():
        slots.setdefault(slot, minimum.get(slot, 0) or default)
    return ResourceSlots(slots)


def check_resources(
    slots: ResourceSlots,
    shared_memory: int,
    image: str,
    bounds: tuple[Mapping[str, int], Mapping[str, int]],
) -> None:
    """Check resources against the image's bounds, and shared memory against mem.

    ``bounds`` are the image's minimum and maximum resources.

    Raises
    ------
    InvalidRequest
        If a bound is violated; the message contains the requested amount and the bound.
    """
    minimum, maximum = bounds
    for slot, amount in sorted(minimum.items()):
        if slots.get(slot, 0) < amount:
            raise InvalidRequest(
                f"{slot}={format_amount(slot, slots.get(slot, 0))} was requested, but image "
                f"{image} needs at least {format_amount(slot, amount)}",
                slot=slot,
                minimum=format_amount(slot, amount),
            )
    for slot, amount in sorted(maximum.items()):
        if slots.get(slot, 0) > amount:
            raise InvalidRequest(
                f"{slot}={format_amount(slot, slots[slot])} was requested, but image {image} can "
                f"use at most {format_amount(slot, amount)}",
                slot=slot,
                maximum=format_amount(slot, amount),
            )
    if shared_memory >= slots[MEM]:
        raise InvalidRequest(
            f"shared memory of {format_amount(MEM, shared_memory)} must be less than "
            f"mem={format_amount(MEM, slots[MEM])}, which includes it",
            field="shared_memory",
        )
