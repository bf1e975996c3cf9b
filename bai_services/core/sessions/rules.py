"""Rules for requests: session names, environment, shared memory, resources."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import InvalidRequest
from ..resources import CPU, MEM, ResourceSlots, format_amount

NAME_MIN, NAME_MAX = 4, 64
DEFAULT_SHARED_MEMORY = 64 * 2**20
DEFAULT_SLOTS = ResourceSlots({CPU: 1000, MEM: 2**30})

ENVIRON_COUNT = 100
ENVIRON_NAME_MAX = 128
ENVIRON_VALUE_BYTES = 32 * 1024
ENVIRON_TOTAL_BYTES = 128 * 1024
# Set by the platform, or able to open a device that is not the session's own.
RESERVED_ENVIRON = ("BAI_", "JUPYTERHUB_", "JPY_", "NVIDIA_", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_")

_NAME = re.compile(r"\w[\w.-]*\w", re.ASCII)
_ENVIRON_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HINT_FROM = 200
_HUB_NAME_MAX = 30
_HUB_SLUG_MAX = 20
_HUB_HEX = 6


def check_session_name(name: str) -> str:
    """Return ``name`` if it is valid for a session.

    Raises
    ------
    InvalidRequest
        If it has other than 4 to 64 ASCII letters, digits and ``_.-``, or does
        not begin and end with a letter, digit or ``_``.
    """
    if not name:
        raise InvalidRequest(
            f"an empty text cannot name a session: give {NAME_MIN} to {NAME_MAX} letters, digits "
            "and _ . - (ASCII), or leave the field out for a generated name",
            field="name",
            suggestion=_suggested(name),
        )
    if not NAME_MIN <= len(name) <= NAME_MAX or _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name[:80]!r} cannot name a session: {NAME_MIN} to {NAME_MAX} letters, digits and "
            f"_ . - between them (ASCII); for instance {_suggested(name)}",
            field="name",
            suggestion=_suggested(name),
        )
    return name


def session_name_from(text: str) -> str:
    """Return a session name for the name of a Hub server.

    The Hub's names may be shorter: ``gpu`` becomes ``session-gpu``.

    Raises
    ------
    InvalidRequest
        If it has characters that a session's name cannot have, or too many; with a suggestion.
    """
    if 0 < len(text) < NAME_MIN and check_session_name(f"session-{text}"):
        return f"session-{text}"
    return check_session_name(text)


def _suggested(text: str) -> str:
    text = text[:_HINT_FROM]
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.")[: NAME_MAX - len("session-")]
    kept = kept.strip("-.")
    return kept if len(kept) >= NAME_MIN else f"session-{kept}".rstrip("-")


def hub_server_name(name: str, session_id: str) -> str:
    """Return the Hub's name for a session's server: a slug of the name and six digits of the id.

    It has at most 30 characters, begins with a letter, contains lower-case letters, digits and
    single hyphens, and does not end with one.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    slug = slug if slug[:1].isalpha() else f"s-{slug}"
    slug = slug[:_HUB_SLUG_MAX].rstrip("-") or "s"
    return f"{slug}-{session_id.replace('-', '')[:_HUB_HEX]}"[:_HUB_NAME_MAX]


def check_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment if it is valid for a session.

    Raises
    ------
    InvalidRequest
        If a name is malformed or reserved, a value contains a NUL, or it is too
        large: 100 variables, 32 KiB each, 128 KiB together.
    """
    if len(environ) > ENVIRON_COUNT:
        raise InvalidRequest(
            f"{len(environ)} environment variables; at most {ENVIRON_COUNT} are allowed",
            field="environ",
        )
    total = 0
    for name, value in environ.items():
        _check_variable(name, value)
        total += len(name) + len(value.encode(errors="replace"))
    if total > ENVIRON_TOTAL_BYTES:
        raise InvalidRequest(
            f"the environment has {total} bytes; at most {ENVIRON_TOTAL_BYTES} are allowed",
            field="environ",
        )
    return dict(environ)


def _check_variable(name: str, value: str) -> None:
    if len(name) > ENVIRON_NAME_MAX or _ENVIRON_NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name[:80]!r} cannot name an environment variable: letters, digits and _, not a "
            f"digit first, at most {ENVIRON_NAME_MAX}",
            field="environ",
            variable=name[:ENVIRON_NAME_MAX],
        )
    if name.startswith(RESERVED_ENVIRON):
        raise InvalidRequest(
            f"the environment variable {name} is reserved; names may not begin with "
            f"{', '.join(RESERVED_ENVIRON)}",
            field="environ",
            variable=name,
        )
    if "\0" in value or len(value.encode(errors="replace")) > ENVIRON_VALUE_BYTES:
        raise InvalidRequest(
            f"the value of {name} holds a NUL or has more than {ENVIRON_VALUE_BYTES} bytes",
            field="environ",
            variable=name,
        )


def fill_slots(
    asked: ResourceSlots, preset: ResourceSlots, minimum: Mapping[str, int]
) -> ResourceSlots:
    """Return the resources of a session: requested, else the preset's, else the image's minimum.

    The image only supplies cpu and mem (else 1 core and 1 GiB). A requested device slot replaces
    the slots of the same family in the preset.
    """
    families = {slot.partition(".")[0] for slot in asked if "." in slot}
    filled = {slot: n for slot, n in preset.items() if slot.partition(".")[0] not in families}
    filled.update(asked)
    for slot, default in DEFAULT_SLOTS.items():
        filled.setdefault(slot, minimum.get(slot, 0) or default)
    return ResourceSlots(filled)


def check_amounts(
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
        Naming the slot, the requested quantity and the bound.
    """
    least, most = bounds
    for slot, amount in sorted(least.items()):
        if slots.get(slot, 0) < amount:
            raise InvalidRequest(
                f"{slot}={format_amount(slot, slots.get(slot, 0))} asked, but image {image} needs "
                f"at least {format_amount(slot, amount)}",
                slot=slot,
                minimum=format_amount(slot, amount),
            )
    for slot, amount in sorted(most.items()):
        if slots.get(slot, 0) > amount:
            raise InvalidRequest(
                f"{slot}={format_amount(slot, slots[slot])} asked, but image {image} can use at "
                f"most {format_amount(slot, amount)}",
                slot=slot,
                maximum=format_amount(slot, amount),
            )
    if shared_memory >= slots[MEM]:
        raise InvalidRequest(
            f"shared memory of {format_amount(MEM, shared_memory)} must be less than "
            f"mem={format_amount(MEM, slots[MEM])}, of which it is a part",
            field="shared_memory",
        )
