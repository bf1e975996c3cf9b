"""Settings of the manager: their definitions, the origins of their values, and stored overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..errors import InvalidRequest
from ..user_input import read_whole, shown

MAX_VALUE_CHARS = 32
# About 100 years. A much larger number would make the date computed from it invalid.
MAX_DAYS = 36_500
MAX_NUMBER = 2**63 - 1


class Origin(StrEnum):
    """Where a value comes from; ``database``: an administrator has set the value in bai-hub."""

    DEFAULT = "default"
    ENVIRONMENT = "environment"
    DATABASE = "database"


class Kind(StrEnum):
    TEXT = "text"
    NUMBER = "number"
    SWITCH = "switch"
    SECRET = "secret"


@dataclass(frozen=True, slots=True)
class SettingDefinition:
    """A setting that is read from an environment variable."""

    variable: str
    kind: Kind = Kind.TEXT


@dataclass(frozen=True, slots=True)
class ChangeableSetting(SettingDefinition):
    """A setting that can also be set in the database.

    ``field`` is its field in ``Settings``. None of these settings can lock administrators out.
    """

    field: str = ""
    minimum: int = 0
    maximum: int = MAX_NUMBER

    def parse(self, text: str) -> int | bool:
        """Parse a value.

        Raises
        ------
        InvalidRequest
            If the text is not valid.
        """
        if self.kind is Kind.SWITCH:
            if text not in ("0", "1"):
                raise InvalidRequest(
                    f"{self.variable} must be 0 or 1, not {shown(text)!r}", field="value"
                )
            return text == "1"
        number = read_whole(text)
        if number is None or not self.minimum <= number <= self.maximum:
            limits = f"of at least {self.minimum}"
            if self.maximum < MAX_NUMBER:
                limits = f"from {self.minimum} to {self.maximum}"
            raise InvalidRequest(
                f"{self.variable} must be a whole number {limits}, not {shown(text)!r}",
                field="value",
            )
        return number


def _number(variable: str, field: str, minimum: int = 0) -> ChangeableSetting:
    return ChangeableSetting(variable, Kind.NUMBER, field, minimum)


def _days(variable: str, field: str, minimum: int = 0) -> ChangeableSetting:
    return ChangeableSetting(variable, Kind.NUMBER, field, minimum, MAX_DAYS)


CHANGEABLE: Sequence[ChangeableSetting] = (
    _days("BAI_AUDIT_DAYS", "audit_days"),
    ChangeableSetting("BAI_BUILD_RECIPES", Kind.SWITCH, "builds_recipes"),
    _number("BAI_BUILD_TIMEOUT_SECONDS", "build_timeout_seconds", minimum=60),
    ChangeableSetting("BAI_MASK_USERS", Kind.SWITCH, "masks_users"),
    _number("BAI_MAX_FILE_BYTES", "max_file_bytes"),
    _number("BAI_MAX_OPEN_UPLOADS", "max_open_uploads", minimum=1),
    _days("BAI_PASSWORD_MAX_AGE_DAYS", "password_max_age_days"),
    _days("BAI_SESSION_LOG_DAYS", "session_log_days"),
    ChangeableSetting("BAI_SHOW_ABSENT_IMAGES", Kind.SWITCH, "shows_absent_images"),
    ChangeableSetting("BAI_SHOW_AGENTS", Kind.SWITCH, "shows_agents"),
    _days("BAI_SUSPENDED_DAYS", "suspended_days", minimum=1),
    _days("BAI_TRASH_DAYS", "trash_days"),
)
_TEXTS = (
    "BAI_BRAND_COLOR",
    "BAI_BRAND_LOGO",
    "BAI_BRAND_NAME",
    "BAI_CALLBACK_HOSTS",
    "BAI_CALLBACK_NETWORKS",
    "BAI_COMMIT_MAX_BYTES",
    "BAI_COMMIT_REGISTRY",
    "BAI_GATEWAY_DOMAIN",
    "BAI_HOME",
    "BAI_IMPORT_HOSTS",
    "BAI_IMPORT_MAX_BYTES",
    "BAI_IMPORT_NETWORKS",
    "BAI_LOG_FORMAT",
    "BAI_LOG_LEVEL",
    "BAI_MAIL_FROM",
    "BAI_MAIL_HOST",
    "BAI_MAIL_PORT",
    "BAI_MAIL_SECURITY",
    "BAI_MAIL_USER",
    "BAI_MODEL_HUB_URL",
    "BAI_ONE_TIME_CODES",
    "BAI_PROVISIONING_COMMAND",
    "BAI_REGISTRY_HOSTS",
    "BAI_REGISTRY_NETWORKS",
    "BAI_STORAGE_HOSTS",
    "BAI_STORAGE_ROOT",
    "BAI_SWARM_HOST",
    "BAI_TRACING",
    "BAI_TRUSTED_PROXIES",
)
# Secrets, files with secrets, and a URL that may contain a password.
_SECRETS = (
    "BAI_AGENT_TOKEN_FILE",
    "BAI_GATEWAY_TOKEN_FILE",
    "BAI_DATABASE_URL",
    "BAI_HUB_TOKEN_FILE",
    "BAI_KEY_FILE",
    "BAI_MAIL_PASSWORD_FILE",
    "BAI_METRICS_TOKEN_FILE",
    "BAI_MODEL_HUB_TOKEN_FILE",
    "BAI_PROMETHEUS_URL",
)
SETTINGS: Sequence[SettingDefinition] = (
    *CHANGEABLE,
    *(SettingDefinition(variable) for variable in _TEXTS),
    *(SettingDefinition(variable, Kind.SECRET) for variable in _SECRETS),
)
DEFINITIONS = {setting.variable: setting for setting in SETTINGS}


def configured(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in an environment; a secret has the value ""."""
    return {
        setting.variable: "" if setting.kind is Kind.SECRET else environ[setting.variable]
        for setting in SETTINGS
        if environ.get(setting.variable)
    }


@dataclass(frozen=True, slots=True)
class Override:
    """The value of a setting that an administrator has set in the database."""

    variable: str
    value: str
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True, slots=True)
class SettingState:
    """A setting with its current value.

    ``value`` is in force in this process. It is None for a secret, and for a setting that is not
    set and has no fixed default. ``stored`` is the value in the database. If they differ, a restart
    of the manager is needed (``needs_restart``).
    """

    name: str
    kind: str
    value: str | None
    default: str | None
    origin: str
    minimum: int | None
    stored: str | None
    changed_at: datetime | None
    changed_by: str | None
    is_changeable: bool
    needs_restart: bool
