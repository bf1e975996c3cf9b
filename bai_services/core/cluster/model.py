"""Agents, devices and images: statuses, and validation of their ids and names."""

from __future__ import annotations

import re
from enum import StrEnum

from ..errors import InvalidRequest

MAX_NAME = 64
MAX_IMAGE_NAME = 255
MAX_DEVICE_ID = 128

# Upper-case letters are allowed because host names may contain them.
_AGENT_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?")
_DEVICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*")
_FAMILY = re.compile(r"[a-z][a-z0-9-]{0,31}")
_IMAGE = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]{1,5})?/)?"  # registry
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"  # tag
)


class AgentStatus(StrEnum):
    ALIVE = "ALIVE"
    LOST = "LOST"  # the last heartbeat is too old; the agent may reconnect
    TERMINATED = "TERMINATED"  # the agent has reported its shutdown


class EngineName(StrEnum):
    PROCESS = "process"
    DOCKER = "docker"


class LinkKind(StrEnum):
    """Kind of scope to which a link gives access to a resource group.

    A link refers to a domain by name, to a project or user by id, to a keypair by access key.
    """

    DOMAIN = "domain"
    PROJECT = "project"
    USER = "user"
    KEYPAIR = "keypair"


def check_agent_id(agent_id: str) -> str:
    """Return ``agent_id`` if it is a valid id of an agent.

    A valid id has 1 to 64 letters, digits and ``-_.``, and begins and ends with a letter or digit.
    ``..`` is not allowed.

    Raises
    ------
    InvalidRequest
        If the id is not valid.
    """
    if len(agent_id) > MAX_NAME or not _AGENT_ID.fullmatch(agent_id) or ".." in agent_id:
        raise InvalidRequest(
            f"{agent_id[:80]!r} cannot be the id of an agent: use 1 to {MAX_NAME} letters, digits, "
            "- _ and single dots, and begin and end with a letter or digit",
            field="id",
        )
    return agent_id


def check_device(device_id: str, family: str) -> None:
    """Check a device id and a device family.

    Raises
    ------
    InvalidRequest
        If the id has invalid characters or more than 128 characters, or the family is not valid as
        the first part of a slot name.
    """
    if len(device_id) > MAX_DEVICE_ID or not _DEVICE_ID.fullmatch(device_id):
        raise InvalidRequest(
            f"{device_id[:80]!r} cannot be the id of a device: use 1 to {MAX_DEVICE_ID} letters, "
            "digits, - _ . : /, and begin with a letter or digit",
            field="devices",
        )
    if not _FAMILY.fullmatch(family):
        raise InvalidRequest(
            f"{family[:80]!r} is not a valid device family: use 1 to 32 lower-case letters, digits "
            "and -, and begin with a letter",
            field="devices",
        )


def canonical_image(name: str) -> str:
    """Return the name of an image with its tag; add the tag ``latest`` if it has no tag.

    Raises
    ------
    InvalidRequest
        If the name does not have the form ``[registry/][project/]name[:tag]``, or has more than 255
        characters with its tag.
    """
    if len(name) > MAX_IMAGE_NAME or not _IMAGE.fullmatch(name):
        raise InvalidRequest(
            f"{name[:80]!r} is not an image name such as python:3.12 or "
            "registry.example.org/team/python:3.12",
            field="name",
        )
    canonical = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    if len(canonical) > MAX_IMAGE_NAME:
        raise InvalidRequest(
            f"an image name with its tag can have at most {MAX_IMAGE_NAME} characters", field="name"
        )
    return canonical
