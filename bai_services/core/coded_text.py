"""Texts for users as codes with values, from which clients build the text in any language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import Any

from .duration_text import format_duration
from .refusal_texts import RefusalText

Value = str | int

DURATION_SUFFIX = "_seconds"


@dataclass(frozen=True, slots=True)
class CodedText:
    """A text with its values and with the texts that it contains; ``str`` returns it in English.

    Values with names that end in ``_at`` are ISO 8601 times; values with names that end in
    ``_seconds`` are durations. Names, amounts and lists of names are strings, as users write them.
    """

    code: str
    values: Mapping[str, Value] = field(default_factory=dict)
    parts: tuple[CodedText, ...] = ()

    def __str__(self) -> str:
        return self.format(_TEMPLATES)

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> CodedText:
        """Return the text from a JSON object of ``as_json``."""
        return cls(text["code"], text["values"], tuple(map(cls.from_json, text["parts"])))

    def format(self, templates: Mapping[str, str]) -> str:
        """Return the text in the language of ``templates``, a map from codes to templates.

        Raises
        ------
        KeyError
            If there is no template for the code of this text or of a part, or a value is missing.
        """
        values = {name: _Value.of(name, value) for name, value in self.values.items()}
        parts = _Parts(part.format(templates) for part in self.parts)
        return templates[self.code].format_map({**values, "parts": parts})

    def as_json(self) -> dict[str, Any]:
        """Return the text as a JSON object."""
        parts = [part.as_json() for part in self.parts]
        return {"code": self.code, "values": dict(self.values), "parts": parts}


class _Parts(tuple[str, ...]):
    """The parts of a text. Their format specification is the separator: ``{parts:, }``."""

    def __format__(self, separator: str) -> str:
        return separator.join(self)


class _Value(str):
    """A value in a text. The format specification of a number is the noun that it counts."""

    __slots__ = ("number",)
    number: int | None

    @classmethod
    def of(cls, name: str, value: Value) -> _Value:
        is_duration = name.endswith(DURATION_SUFFIX)
        text = cls(format_duration(int(value)) if is_duration else value)
        text.number = value if isinstance(value, int) else None
        return text

    def __format__(self, noun: str) -> str:
        if not noun:
            return str(self)
        return f"{self} {noun}{'' if self.number == 1 else 's'}"


@unique
class TextTemplate(Enum):
    """The English texts. A placeholder is the name of a value, or ``parts``.

    ``{parts:, }`` joins the parts with a comma, and ``{count:session}`` is ``1 session`` or ``2
    sessions``. The code of a text is its name in lower case with hyphens. ``reasons.json`` of each
    language in ``bai_services/i18n`` except English has a translation of every code.
    """

    @property
    def code(self) -> str:
        return self.name.lower().replace("_", "-")

    def text(self, *parts: CodedText, **values: Value) -> CodedText:
        return CodedText(self.code, values, parts)

    # Results of the checks of a pending session
    ACCOUNTS_ACTIVE = "user, keypair, project and domain are active"
    USER_INACTIVE = "the account {name} is not active"
    KEYPAIR_INACTIVE = "keypair {name} is not active"
    PROJECT_INACTIVE = "project {name} is not active"
    NOT_A_MEMBER = "{user} is not a member of project {project}"
    BUDGET_SPENT = "the budget of project {name} ({amount}) is spent"
    DOMAIN_INACTIVE = "domain {name} is not active"
    GROUP_ACTIVE = "resource group {group} is active"
    GROUP_INACTIVE = "resource group {group} is not active"
    DEPENDENCIES_MET = "no other session has to end first"
    DEPENDENCIES_UNMET = "waits for the success of {parts:, }"
    MORE_DEPENDENCIES_UNMET = "waits for the success of {parts:, } and {more} more"
    SESSION_IN_STATUS = "{name} ({status})"
    ANY_START_TIME = "may start at any time"
    START_TIME_PASSED = "the requested start time was {starts_at}"
    START_TIME_AHEAD = "does not start before {starts_at}"
    POSITION = "position {position} in resource group {group}; no earlier session blocks it"
    POSITION_BEHIND = (
        "position {position} in resource group {group}: an earlier session waits for capacity, and "
        "no later session may overtake it"
    )
    BEHIND = "waits for its turn: an earlier session of resource group {group} waits for capacity"
    # The estimate states the time.
    RESERVED = "from its estimated start on, no later session may use its resources"
    RESERVED_AT_UNKNOWN_TIME = (
        "no later session may use its resources once they are free; when that is cannot be "
        "estimated"
    )
    DELAYS = "fits now, but would delay an earlier session, for which capacity is reserved"
    DELAYS_FROM = (
        "fits now, but would delay an earlier session, for which capacity is reserved from "
        "{starts_at}"
    )
    PREEMPTS = "{count:running session} will be stopped for it; it starts at about {starts_at}"
    CAN_BE_PREEMPTED = (
        "after its start, it can be stopped for sessions of higher priority: its priority is "
        "{priority}, and resource group {group} preempts sessions up to priority {limit}"
    )
    ABOVE_PREEMPTIBLE_PRIORITY = (
        "it cannot be preempted: its priority is {priority}, and resource group {group} preempts "
        "sessions up to priority {limit}"
    )
    NOT_PREEMPTIBLE = "it cannot be preempted: it was created as not preemptible"
    MAINTENANCE = "maintenance: {reason}"
    MAINTENANCE_UNTIL = "maintenance until {ends_at}: {reason}"
    MAINTENANCE_AHEAD = (
        "its maximum run time of {maximum_seconds} reaches into the maintenance planned from "
        "{starts_at}: {reason}"
    )
    MAINTENANCE_MAY_INTERRUPT = (
        "has no maximum run time, so it may still run when the maintenance planned from "
        "{starts_at} begins: {reason}"
    )
    RESERVED_UNTIL = "held by a reservation of project {project} until {ends_at}"
    RESERVED_AHEAD = (
        "could still run when the reservation of project {project} begins at {starts_at}; sessions "
        "with a maximum run time that ends before may start"
    )
    RESERVED_PART_UNTIL = (
        "the reservation of project {project} keeps {slots} free on {count:agent} until {ends_at}"
    )
    RESERVED_PART_AHEAD = (
        "could still run when the reservation of project {project} begins at {starts_at}, so it "
        "must leave {slots} free on {count:agent}"
    )
    ONLY_RESERVED_AGENTS = "runs only on the agents of its reservation for project {project}"

    # Quotas; ``parts`` contains the scope
    SCOPE_DOMAIN = "domain {name}"
    SCOPE_PROJECT = "project {name}"
    SCOPE_USER = "user {name}"
    SCOPE_KEYPAIR = "keypair {name}"
    SCOPE_KEYPAIR_OF_USER = "the keypair of user {name} (policy {policy})"
    SCOPE_RESOURCE_GROUP = "resource group {name}"
    QUOTA_KEPT = "{parts} uses {slot}={used} of {limit}; {asked} more requested"
    QUOTA_OF_SESSIONS_KEPT = "{parts} uses sessions={used} of {limit}; {asked} more requested"
    QUOTA_EXCEEDED = (
        "{slot}={asked} requested, but {parts} may have at most {slot}={limit}, of which {left} is "
        "left"
    )
    QUOTA_OF_SESSIONS_EXCEEDED = (
        "{parts} may have at most {limit:running session}: {used} running, {left} left, {asked} "
        "requested"
    )
    QUOTA_OF_CONTAINERS_EXCEEDED = (
        "{asked} containers requested, but a session of {parts} may have at most {limit}"
    )
    PENDING_QUOTA_EXCEEDED = (
        "{slot}={asked} requested, but {parts} may have at most {slot}={limit} in pending "
        "sessions, of which {left} is left"
    )
    PENDING_QUOTA_OF_SESSIONS_EXCEEDED = (
        "{parts} may have at most {limit:pending session}: {used} pending, {left} left, {asked} "
        "requested; cancel some, wait until some have started, or ask for a higher limit"
    )

    # Capacity of a resource group
    CAPACITY = "resource group {group} has capacity for {slots}"
    NO_AGENT = "resource group {group} has no agent"
    KERNELS_FIT = "resource group {group}: only {fitting} of {kernels} kernels fit now"
    NO_SINGLE_AGENT = "resource group {group}: no single agent has {slots} free"
    NO_SINGLE_AGENT_FOR_KERNELS = (
        "resource group {group}: no single agent has {kernels} times {slots} free"
    )
    SHORTAGES = "resource group {group}: {parts:; }"
    SHORTAGE = "{slot}={asked} requested, but at most {available} is free on one agent"
    SHORTAGE_WITHOUT_SHARING = (
        "{slot}={asked} requested, but at most {available} is free on one agent; no device can be "
        "shared now at the required enforcement level"
    )
    SHARE_TOO_SMALL = (
        "{slot}={asked} requested, but the smallest share of the devices here is {smallest}"
    )
    OTHER_SHARES = (
        "{slot}={asked} requested, but the devices with enough capacity accept only shares of "
        "{shares} until they are empty, because all shares of such a device are equal"
    )
    OTHER_SHARE_SIZE = (
        "{slot}={asked} requested, but the devices with enough capacity accept only shares of "
        "another size until they are empty, because all shares of such a device are equal"
    )
    NOT_EVEN_ALONE = "{parts}, even without any other session"
    ONLY_AGENT_UNABLE = (
        "the only agent of resource group {group} cannot run the session: {parts:, }"
    )
    AGENTS_UNABLE = (
        "none of the {agents} agents of resource group {group} can run the session: {parts:, }"
    )
    AGENTS_NOT_ALIVE = "{count} not alive"
    AGENTS_NOT_SCHEDULABLE = "{count} not schedulable"
    AGENTS_OF_OTHER_KIND = (
        "{count} with an architecture other than {architecture} or another engine"
    )
    AGENTS_WITH_OLD_DRIVER = (
        "{count} with a driver that is too old for CUDA {cuda}, which the image needs"
    )
    AGENTS_NOT_DESIGNATED = "{count} not among the designated agents ({names})"
    AGENTS_WITHOUT_STORAGE = "{count} on which storage host {names} does not work"
    ALSO_WITHOUT_STORAGE = (
        "{parts}; {count:other agent} cannot run the session, because storage host {names} does "
        "not work there"
    )

    AGENTS_WITHOUT_SUBNET = "{count} without a free subnet for networks of sessions"
    ALSO_WITHOUT_SUBNET = (
        "{parts}; {count:other agent} cannot run the session, because no subnet for networks of "
        "sessions is free there"
    )

    # Suggestions for an earlier start
    MACHINE_STARTING = (
        "{parts}; a machine is being started for this resource group since {started_at}"
    )
    TRY_GROUP = "resource group {group} has capacity for it now"
    TRY_LESS = "it would start now with {slots}"
    TRY_PRESET = "it would start now with the preset {preset} ({slots})"
    RAISE_QUOTA = (
        "blocked by the quota of {parts} ({count:session} running); with this request, the session "
        "starts only after the quota is raised or running sessions release enough of the quota"
    )
    QUOTA_USERS = "{parts}; running sessions that use it: {names}"

    # Reasons for the status of a session
    PLACED = "placed on {names}"
    STOPPED = "stopped"
    STOPPED_BY = "stopped by {name}"
    BUILD_ENDED = "the build of custom image {name} has ended"
    STOPPED_BEFORE_START = "stopped before it was started"
    STOPPED_THROUGH_HUB = "stopped through the Hub"
    START_CANCELLED = "the start was cancelled"
    PENDING_TIMEOUT = (
        "PENDING_TIMEOUT_EXCEEDED: pending for more than {maximum_seconds}, the maximum of "
        "resource group {name}"
    )
    # These texts announce a stop, and later state the reason of the end.
    BATCH_TIMEOUT = "BATCH_TIMEOUT_EXCEEDED: at most {maximum_seconds}, its batch_timeout"
    LIFETIME = "lifetime: at most {maximum_seconds}, the limit of keypair policy {name}"
    LIFETIME_EXTENDED = (
        "lifetime: at most {maximum_seconds}, the limit of keypair policy {name}, plus an "
        "extension of {added_seconds}"
    )
    IDLE_TIMEOUT = (
        "idle timeout: at most {maximum_seconds} without use, the limit of keypair policy {name}"
    )
    IDLE_UTILIZATION = (
        "low utilization: {parts:, } in {percent}% of the samples of {window_seconds}; idle "
        "checker {name}"
    )
    IDLE_UTILIZATION_ANY = (
        "low utilization: one of {parts:, } in {percent}% of the samples of {window_seconds}; idle "
        "checker {name}"
    )
    METRIC_MEASURED = "{parts} {value} (threshold {limit})"
    METRIC_LIMIT = "{parts} below {limit}"
    METRIC_BELOW = "{metric} {value} (threshold {limit})"  # in texts stored by earlier versions
    CPU_UTILIZATION = "CPU utilization"
    MEMORY_USE = "memory use"
    NETWORK_TRAFFIC = "network traffic"
    DISK_ACCESS = "disk access"
    DEVICE_UTILIZATION = "{name} utilization"
    DEVICE_MEMORY = "{name} memory use"
    IDLE_NETWORK = (
        "idle timeout: at most {maximum_seconds} without use, the limit of idle checker {name}"
    )
    IDLE_LIFETIME = "lifetime: at most {maximum_seconds}, the limit of idle checker {name}"
    PREEMPTED_BY_PRIORITY = (
        "preempted: a session with a priority above {priority} needs the resources of resource "
        "group {group}"
    )
    PREEMPTED_BY_JOB_PRIORITY = (
        "preempted: a session of the same user with a higher job priority needs the resources of "
        "resource group {group}"
    )
    PREEMPTED_BY_FAIR_SHARE = (
        "preempted: a user with a smaller share of resource group {group} needs the resources"
    )
    BUDGET_STOP = "budget: the budget of project {name} is spent"
    SCHEDULED_STOP = "scheduled stop: the time that schedule {name} sets"
    DEPENDENCY_FAILED = (
        "DEPENDENCY_FAILED: its dependency, session {name}, is TERMINATED with failure"
    )
    DEPENDENCY_STOPPED = (
        "DEPENDENCY_FAILED: its dependency, session {name}, is TERMINATED with undefined"
    )
    DEPENDENCY_ENDED = "DEPENDENCY_FAILED: its dependency, session {name}, is {status}"
    EXITED = "exited"
    ENDED = "ended by itself"
    ENDED_UNEXPECTEDLY = "ended with exit code {code}; the manager did not stop it"
    CONTAINER_DISAPPEARED = "its container has disappeared; the manager did not stop it"
    COMMAND_EXITED = "the command exited with code {code}"
    COMMAND_KILLED = "the command was terminated by signal {signal} (exit code {code})"
    OUT_OF_MEMORY = "was killed for exceeding its memory limit"
    REMOVED = "was removed by something other than the Hub"
    KILLED = "killed"
    KILLED_FROM_OUTSIDE = "killed from outside"
    KERNEL_EXITED = (
        "{name} exited with exit code {code}; a cluster session requires all of its kernels"
    )
    KERNEL_DISAPPEARED = "{name} has disappeared; a cluster session requires all of its kernels"
    NOT_PREPARED = "the agent could not prepare the session"
    BOOTSTRAP_FAILED = "the bootstrap script failed; its last output: {message}"
    NOT_STARTED_BY_HUB = "the Hub could not start the session"
    HUB_BUSY = "the Hub is busy; {message}"
    WAITING_FOR_HUB = "waiting for the Hub: {message}"
    SERVER_LOST = "the Hub lost the session's server, which is restarted"
    STUCK = "stuck: {status} for more than {minutes:minute}"
    LAST_MESSAGE = "{parts}; last message: {message}"
    MOVED_BY_RULE = (
        "moved from resource group {source} to {group} after a wait of {waited_seconds}; overflow "
        "rule of project {name}"
    )
    DISPLACED = "its agent was lost; the session is pending again"
    SUSPENDING_BY = "suspended by {name}; it stops at {ends_at} at the latest"
    REQUEUING_BY = (
        "saved by {name} and queued again; it stops at {ends_at} at the latest and comes back"
    )
    SUSPENDED_BY = "suspended by {name}"
    SUSPENDED_UNTIL = "suspended by {name}; its home is deleted on {ends_at} unless it is resumed"
    RESUMED_BY = "resumed by {name}"
    REQUEUED = "queued again after it was saved"
    RETURNED_TO_QUEUE = "returned to the queue"
    SUSPENSION_EXPIRED = "suspended for more than {maximum_seconds}, the maximum of this site"
    AGENT_LOST = "its agent has been lost for more than {minutes:minute}"
    AGENT_SILENT = (
        "its agent {name} has not responded since {last_at}; the session continues if the agent "
        "returns by {ends_at}"
    )
    AGENT_SILENT_REQUEUE = (
        "its agent {name} has not responded since {last_at}; the session starts again on another "
        "agent after {ends_at}"
    )
    AGENT_LOST_REQUEUED = "its agent {name} was lost; the session starts again"
    AGENTS_LOST_OFTEN = "it has lost its agent {count:time}, the maximum; the last was {name}"

    # Notifications; ``parts`` contains the reason or the rule
    NOTICE_SESSION_RUNNING = "session {name} is running"
    NOTICE_SESSION_FAILED = "session {name} has failed: {parts}"
    NOTICE_SESSION_ENDED = "session {name} has ended: {parts}"
    NOTICE_SESSIONS_PENDING = (
        "{count:session} pending for more than {minimum_seconds}; the longest is {name}"
    )
    NOTICE_SESSION_STOPS = "session {name} will be stopped at {ends_at}: {parts}"
    NOTICE_SESSION_STOPS_KEEP_ALIVES = (
        "session {name} will be stopped at {ends_at}: {parts}; remaining keep-alives: {left}"
    )
    NOTICE_SESSION_STOPS_REQUEUED = (
        "session {name} will be stopped at {ends_at} and returns to the queue: {parts}"
    )
    NOTICE_SESSION_REQUEUED = "session {name} starts again, because its agent was lost"
    NOTICE_SESSION_RUNS_AGAIN = "session {name} runs again after its preemption"
    NOTICE_SESSION_PREEMPTED = "session {name} was stopped: {parts}"
    NOTICE_SESSION_CONTINUES = "session {name} continues to run: its preemption was cancelled"
    NOTICE_RUN_SUCCEEDED = "a run of pipeline {name} has succeeded"
    NOTICE_RUN_FAILED = "a run of pipeline {name} has failed"
    NOTICE_APPROVAL = "pipeline {name}: task {task} waits for your approval"
    NOTICE_ROLLOUT_FAILED = "the rollout of endpoint {name} has failed: {parts}"
    NOTICE_ENDPOINT_FAILING = "endpoint {name}: its replicas fail repeatedly: {parts}"
    NOTICE_FOLDER_SHARED = "{user} shares the folder {name} with you ({permission})"
    NOTICE_QUOTA = "storage host {host}: {percent}% of the quota is used ({used} of {limit})"
    NOTICE_PROJECT_QUOTA = (
        "project {name}, storage host {host}: {percent}% of the quota is used ({used} of {limit})"
    )
    NOTICE_BUDGET = "project {name} has used {percent}% of its budget"
    NOTICE_BUDGET_BLOCKS = (
        "project {name} has used {percent}% of its budget: new sessions wait until it is raised or "
        "its next period begins"
    )
    NOTICE_BUDGET_STOPS = (
        "project {name} has used {percent}% of its budget: new sessions wait, and running sessions "
        "stop at {ends_at}"
    )
    NOTICE_ANNOUNCEMENT = "{title}"
    NOTICE_MAINTENANCE = "maintenance from {starts_at}: {reason}"
    NOTICE_MAINTENANCE_OF = "maintenance of {target} from {starts_at}: {reason}"
    NOTICE_RESERVATION_REQUESTED = (
        "{user} requests the reservation {name} for project {project} from {starts_at}"
    )
    NOTICE_RESERVATION_APPROVED = "{user} has approved the reservation {name} from {starts_at}"
    NOTICE_RESERVATION_REJECTED = "{user} has rejected the reservation {name} from {starts_at}"
    NOTICE_RESERVATION_CANCELLED = "{user} has cancelled the reservation {name} from {starts_at}"
    NOTICE_RESERVATION_EXPIRED = (
        "the reservation {name} from {starts_at} has expired, because it was not used in time"
    )
    NOTICE_AGENT_LOST = "agent {name} has sent no heartbeat since {last_at}"
    NOTICE_DISK_FULL = "{name}: {percent}% of the disk is free"
    NOTICE_STORAGE_HOST = "storage host {name} cannot be reached: {message}"
    NOTICE_MAIL_FAILING = "{count:mail} could not be delivered in {attempts:attempt} or more"
    NOTICE_TEST = "this is a test message"
    PLAIN_TEXT = "{text}"
    # Why a schedule did not start a session
    SCHEDULE_MISSED = "not started at {due_at}, and it is too late to catch up"
    SCHEDULE_OVER = "it is too late: schedule {name} stops the session at {ends_at}"
    SCHEDULE_OVERLAP = "the session of an earlier start is still live"
    SCHEDULE_NAME_TAKEN = "a session named {name} is live"
    SCHEDULE_REFUSED = "the session was not created: {message}"
    # Replicas of endpoints
    REPLICA_NOT_NEEDED = "endpoint {name} no longer needs this replica"
    REPLICA_PREEMPTED = "its session will be preempted"
    REPLICA_REFUSED = "the replica was not created: {message}"
    REPLICA_ENDED = "the session of the replica has ended: {message}"
    REPLICA_UNHEALTHY = "a gateway found that the health check of the replica fails"
    REPLICA_NOT_READY = "the replica did not pass its health check within {limit_seconds}"
    REVISION_GIVEN_UP = "given up after {failures:failed replica}; the last one: {message}"
    REVISION_ERRORS = "given up after {errors} failed of {requests:request}"
    # For users who may not read the message of the replica
    REPLICA_REFUSED_BRIEF = "the replica was not created; the owner of the endpoint sees why"
    REPLICA_ENDED_BRIEF = "the session of the replica has ended; the owner of the endpoint sees why"
    REVISION_GIVEN_UP_BRIEF = (
        "given up after {failures:failed replica}; the owner of the endpoint sees why"
    )
    REVISION_SLOW = (
        "given up after {requests:request}: 99% of them took up to {p99_ms} ms, more than "
        "{limit_ms} ms"
    )
    # States of trials of definitions
    TRIAL_LOST = "the session of the trial no longer exists"
    TRIAL_PENDING = "the session waits for resources: {message}"
    TRIAL_NO_RESOURCES = "no resources within {limit_seconds}: {message}"
    TRIAL_STARTING = "the session is starting"
    TRIAL_NOT_STARTED = "the session could not be started: {message}"
    TRIAL_NO_IMAGE = (
        "the image could not be pulled; check its name, its tag and the credentials of its "
        "registry: {message}"
    )
    TRIAL_HEALTHY = "healthy after {start_seconds}"
    TRIAL_ENDING = "the session of the trial is ending"
    TRIAL_ENDED = "the trial of the definition has ended"
    PIPELINE_TASK_CANCELLED = "the run of the pipeline was cancelled"
    PIPELINE_TASK_APPROVED = "approved by {name}"
    PIPELINE_TASK_REJECTED = "rejected by {name}"
    TRIAL_NO_HTTP = "the server closed the connection, or does not speak HTTP"
    TRIAL_UNREACHABLE = "the replica cannot be reached"
    TRIAL_SLOW = "the health check {path} was not answered within {timeout_seconds}"
    TRIAL_OTHER_PORT = (
        "the server listens on port {names}, but not on $BAI_SERVICE_PORT: pass it the port from "
        "this variable"
    )
    TRIAL_NOT_LISTENING = (
        "no program listens on $BAI_SERVICE_PORT after {start_seconds} of {limit_seconds}"
    )
    TRIAL_NO_PATH = "the server has no {path} (status 404): set the health path to one that it has"
    TRIAL_NOT_SERVING = "the gRPC health service of the server reports that it does not serve"
    TRIAL_NO_SERVICE = "the gRPC health service of the server does not know the service {path}"
    TRIAL_NO_GRPC = "the server does not speak gRPC, or only with TLS"
    TRIAL_STATUS = "the health check {path} returned status {status} instead of {expected}"
    TRIAL_OUT_OF_MEMORY = "the server was killed for exceeding its memory: request more memory"
    TRIAL_KILLED = (
        "the server was killed (exit code 137), often because it needed more memory than its "
        "limit: request more memory, or see the log"
    )
    TRIAL_COMMAND_NOT_FOUND = (
        "the command, or one in it, was not found (exit code 127): check its name and the image"
    )
    TRIAL_NOT_EXECUTABLE = (
        "the command could not be executed (exit code 126): check the permissions of the file"
    )
    TRIAL_EXITED_AT_ONCE = (
        "the command ended without an error: it must run as long as the server, not in the "
        "background"
    )
    TRIAL_EXITED = "the command ended with exit code {code}; the log shows why"
    TRIAL_NO_PACKAGE = (
        "the Python package {name} is missing: choose an image that has it, or install it before "
        "the server starts"
    )
    TRIAL_GPU_MEMORY = (
        "the GPU memory is not enough for the model: request more GPU memory, or choose a smaller "
        "model or context length"
    )
    # Why an endpoint has its number of replicas; ``parts`` contains the reason without the bound
    SCALING_LOAD = "mean load of {load}"
    SCALING_BURST = "burst with a load of {load}"
    SCALING_RECENT_BURST = "kept after a recent burst with a load of {load}"
    SCALING_QUIET = "no load; the last replica is kept for {idle_seconds}"
    SCALING_IDLE = "no load for {idle_seconds}"
    SCALING_UNKNOWN = "the load is unknown; nothing is changed"
    SCALING_NO_METRIC = "no replica reports the metric {metric}; nothing is changed"
    SCALING_NO_CPU = "the CPU usage of the replicas is unknown; nothing is changed"
    SCALING_QUERY_FAILED = "the Prometheus query failed ({message}); nothing is changed"
    SCALING_MAXIMUM = "{parts}; the maximum is {count:replica}"
    SCALING_REFUSED = "{parts}; a quota or a lack of resources permits only {count:replica} now"
    SCALING_MINIMUM = "{parts}; the minimum is {count:replica}"

    # Why an import has failed
    SOURCE_UNKNOWN_HOST = "the host name {name} cannot be resolved"
    SOURCE_NOT_PUBLIC = "{name} has no public address; an administrator can allow its network"
    SOURCE_TIMEOUT = "the server did not respond in time"
    SOURCE_TLS = "the certificate of the server is not valid, or it does not use TLS"
    SOURCE_UNREACHABLE = "the server cannot be reached ({name})"
    SOURCE_STATUS = "the server responded with status {code}"
    SOURCE_REFUSED = (
        "access is refused (status {code}): the model needs a token, or its terms have not been "
        "accepted; ask an administrator"
    )
    SOURCE_NOT_FOUND = (
        "there is no such model, revision or file (status 404); check the name and import it again"
    )
    SOURCE_CUT_OFF = "the connection was closed before the end of the file"
    SOURCE_SLOW = "{path}: less than {rate} KiB per second were received"
    SOURCE_CHECKSUM = "{path} does not match its checksum; the source may be damaged"
    SOURCE_CHANGED = "{path} has changed during the import"
    SOURCE_FILE = "{path}: {parts}"
    IMPORT_NO_MATCH = "no file of the model matches the patterns"
    IMPORT_TOO_LARGE = "the files have {size} bytes; an import may have at most {limit}"
    IMPORT_QUOTA = (
        "the quota of the folder's owner is too small: {limit} bytes may be used, {used} are in "
        "use or reserved, and {needed} more are needed; remove files, or ask an administrator"
    )
    IMPORT_STORAGE_FULL = "the storage host is full; remove files, or ask an administrator"
    IMPORT_FOLDER_LOST = "folder {name} is no longer in the project"
    IMPORT_INTERNAL_ERROR = "internal error; the log of the manager has the cause"


# Reasons for the end of a session. The spawner reports them as English text. The manager recognizes
# a reason by its text.
REPORTED_ENDS = (
    TextTemplate.STOPPED_THROUGH_HUB,
    TextTemplate.START_CANCELLED,
    TextTemplate.EXITED,
    TextTemplate.OUT_OF_MEMORY,
    TextTemplate.REMOVED,
    TextTemplate.KILLED,
    TextTemplate.KILLED_FROM_OUTSIDE,
)

_TEMPLATES: Mapping[str, str] = {
    **{template.code: template.value for template in TextTemplate},
    **{template.code: template.value for template in RefusalText},
}


def refusal(template: RefusalText, *parts: CodedText, **values: Value) -> CodedText:
    """Return the text of an error."""
    return CodedText(template.code, values, parts)
