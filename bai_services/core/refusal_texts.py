"""English texts of refusals, the request errors that the web UI shows.

A placeholder is the name of a value, or ``parts``, as in ``TextTemplate``. ``!r`` quotes a value
and escapes its control characters. ``reasons.json`` of each language in ``bai_services/i18n``
except English has a translation of every code.
"""

from __future__ import annotations

from enum import Enum, unique


@unique
class RefusalText(Enum):
    """Texts of errors; ``coded_text.refusal`` adds the values."""

    @property
    def code(self) -> str:
        return self.name.lower().replace("_", "-")

    # Pipelines: definitions, and files of other products
    LINE_PROBLEM = "line {line}: {parts}"
    FILE_TOO_LONG = "the file has more than {limit} bytes"
    ELYRA_TOO_MANY_NODES = "the pipeline has more than {limit} nodes"
    ELYRA_NODE_KIND = "the node {name} is of the kind {kind}, which cannot be converted"
    NOT_ELYRA = "the file is not a pipeline of Elyra"
    ELYRA_PARAMETER_TYPE = "the type of the parameter {name!r} is not supported"
    ELYRA_NODE_FILE = "the file of the node {name} cannot be used: {parts}"
    FASTTRACK_PARAMS = "params cannot be converted; write them as variables (envs)"
    TASKS_OUT_OF_RANGE = "tasks must be a list of 1 to {limit} tasks"
    FASTTRACK_TASK_TYPE = "task {name} is of type {kind}, which cannot be converted"
    FASTTRACK_MODULE = "task {name} has a module, which cannot be converted"
    TOO_MANY_ENTRIES = "{key} has more than {limit} entries"
    NOT_A_LIST_OF_STRINGS = "{key} must be a list of at most {limit} strings"
    UNKNOWN_NEED = "task {name} needs {other!r}, which is not a task"
    FASTTRACK_CLUSTER_MODE = "cluster_mode {mode!r} cannot be converted"
    ENTRY_NOT_A_STRING = "an entry of {key} must be a string"
    TARGET_CANNOT_EXPRESS = "{target} has no {feature}"
    TOO_MANY_TASKS = "the run would have {count:task}; at most {limit} are allowed"
    PARAMETERS_TOO_LONG = "the parameters have {size:byte}; at most {limit} are allowed"
    PARAMETER_TYPE = "the parameter {name} must be of the type {kind}, not {value!r}"
    ONLY_NUMBERS_COMPARED = "{comparison} compares only numbers; {name} is a {kind}"
    UNKNOWN_PARAMETER = "there is no parameter {name!r}; parameters: {names}"
    PARAMETER_MISSING = "the parameter {name} needs a value"
    CONTAINS_NOTHING = "{comparison} requires a list or a text; {name} is a {kind}"
    VERSION_IS_NOT = "version must be {version}"
    NO_TASKS = "tasks must have at least one task"
    NOT_A_LIST = "{key} must be a list of at most {limit}"
    NOT_A_VALUE = "{key} must be a string, a number, true or false, or a list of these"
    NOT_FINITE = "{key} is not a finite number"
    NOT_A_MOUNT = "{text!r} is not a mount such as data:/home/work/data:ro"
    TASK_NAME = "the name of a task must have 1 to 40 letters, digits, _ and -"
    TASK_WITHOUT_PARAMETERS = "task {name} of kind {kind} cannot have parameters"
    TOO_MANY_PARAMETERS = "parameters has more than {limit} entries"
    PIPELINE_TASK_CONTINUES = "task {name} of kind pipeline cannot have continue_on_failure"
    CACHE_NEEDS_OUTPUTS = "task {name} has a cache, so it needs outputs"
    ENTRY_EMPTY = "an entry of {key} is empty"
    SECONDS_OUT_OF_RANGE = "{key} must be {lowest} to {highest} seconds"
    CONDITION_NEEDS_VALUE = "a condition needs a value"
    FOR_EACH_NEEDS_ONE = "for_each needs either parameter or values"
    PARAMETER_NOT_A_LIST = "the parameter {name} is not a list"
    NOT_ONE_OF = "{key} must be one of {names}, not {text!r}"
    PARAMETER_NAME = (
        "the name of a parameter must have 1 to 40 letters, digits and _, and begin with a letter"
    )
    PARAMETER_TWICE = "two parameters have the name {name}; case is ignored"
    NOT_A_PARAMETER = "{name!r} is not the name of a parameter with a value"
    TASK_NEEDS = "task {name} of kind {kind} needs {kind}"
    TASK_CANNOT_HAVE = "task {name} of kind {kind} cannot have {key}"
    TASK_WITHOUT_SESSION = (
        "task {name} of kind {kind} has no session, so it cannot have session settings, for_each, "
        "inputs, outputs, retries, timeout or cache"
    )
    TASK_TWICE = "there are two tasks {name}"
    TOO_MANY_NEEDS = "the tasks have more than {limit} dependencies"
    NEEDS_FORM_CYCLE = "the needs of these tasks form a cycle: {names}"
    METRICS_TOO_LONG = "{path} has more than {limit} bytes"
    METRICS_NOT_AN_OBJECT = "{path} must contain a JSON object"
    METRICS_NOT_JSON = "{path} is not valid JSON"
    TOO_MANY_METRICS = "{path} has more than {limit} metrics"
    SCHEDULE_NEEDS_ONE = "give either start or every_minutes"
    EVERY_MINUTES_OUT_OF_RANGE = "every_minutes must be {lowest} to {highest}"
    SCHEDULE_NEVER_STARTS = "the rule has no start, for example because it names 30 February"
    RUN_NOT_RESUMABLE = "the run is {run_status}; only failed and cancelled runs can be resumed"
    RUN_TOO_MANY_NEEDS = "the tasks of the run have more than {limit} dependencies"
    TASK_NAME_TOO_LONG = "the name of task {name} has more than {limit} characters"
    TASK_PROBLEM = "task {name}: {parts}"
    PATTERN_PROBLEM = "{text!r} is not a valid pattern: {parts}"
    PATTERN_LENGTH = "it must have 1 to {limit} characters and at most {levels} levels"
    PATTERN_NOT_RELATIVE = (
        "it must be relative to the folder, without empty levels, '.', '..' and '**'"
    )
    PATTERN_WILDCARDS = "it has more than {limit} wildcards"
    TRIGGER_VALUE = (
        "the parameter {name} has the value ${source}; a trigger of kind {kind} has {known}; "
        "write $$ for a dollar"
    )

    # Pipelines: runs, schedules and triggers
    SAVED_BY_ROLE = (
        "pipeline {name} was saved by a user with the role {author}; because you have the role "
        "{role}, save it yourself before you run it"
    )
    FILES_NOT_ACCEPTED = (
        "users with the role {names} can change the files of pipeline {name}, and its tasks "
        "execute them with your permissions; check the files and accept them, or make the "
        "folder read-only for members"
    )
    RUN_OF_OTHER = (
        "{owner} has started this run; only {owner} and administrators of the domain may change it"
    )
    PROJECT_REQUIRED = "is_project_owned requires project"
    FOLDER_OF_OTHER_PROJECT = "folder {name} does not belong to the project of the pipeline"
    PIPELINE_FOLDER_REMOVED = "the folder of pipeline {name} was removed"
    NOT_A_USER = "{role} is a system component, not a user"
    PIPELINE_FOLDER_MISSING = (
        "the folder of pipeline {name} was removed; save the pipeline to create one"
    )
    PIPELINE_CONTAINS_ITSELF = "pipeline {name} contains itself"
    TOO_MANY_SUB_PIPELINES = (
        "a run may have at most {limit} sub-pipelines, in at most {levels} levels"
    )
    RUN_NOT_CANCELLABLE = "the run is {run_status}; it cannot be cancelled"
    NO_TASK_OF_RUN = "the run has no task {name!r}"
    TASK_NOT_AWAITING = "task {name} is {run_status}; it does not wait for an approval"
    SCHEDULE_OF_OTHER = (
        "only the owner may change a schedule; administrators may pause or delete it"
    )
    NO_TEMPLATE = "there is no template {name!r}, or you may not see it"
    TEMPLATE_BUILT_IN = "template {name} is built in; it cannot be deleted"
    TRIGGER_CYCLE = "the triggers form a cycle, so this trigger creates no run"
    TRIGGERS_WOULD_CYCLE = "the triggers would form a cycle: {name} → {path}"
    WEBHOOK_PARAMETERS = "a webhook cannot have parameters; its calls contain them"
    TRIGGER_FOLDER_REMOVED = "the folder of the trigger was removed"
    TRIGGER_WITHOUT_SECRET = "trigger {name} is of kind {kind}; it has no secret"
    TRIGGER_DISABLED = "trigger {name} is disabled"
    TRIGGER_NEEDS = "a trigger of kind {kind} needs {name}"
    TRIGGER_CANNOT_HAVE = "a trigger of kind {kind} cannot have {name}"
    NO_PIPELINE = "there is no pipeline {name!r}, or you may not see it"
    PIPELINE_AMBIGUOUS = "several projects have a pipeline {name!r}; use an id"
    TOO_MANY_RUNS = "you have {limit} runs that have not ended; wait for them or cancel some"
    NO_RUN = "there is no run {name!r}, or you may not see it"
    RUN_REMOVED = "the run no longer exists"
    RUN_EXISTS = "there is a run {name} already"
    NO_SCHEDULE = "there is no schedule {name!r}, or you may not see it"
    TEMPLATE_EXISTS = "there is a template {name!r} already"
    TOO_MANY_TEMPLATES = "there are {limit} templates already; delete some first"
    TOO_MANY_FILE_TRIGGERS = "you have {limit} triggers of files; delete some"
    NO_TRIGGER = "there is no trigger {name!r}, or you may not see it"
    APP_NOT_IN_IMAGE = (
        "{app} is not part of the image {image}, the default image of the project; an "
        "administrator can choose a default image with {app}"
    )

    # Imports
    IMPORT_NO_LINK = "give the link of a repository, of one of its branches, or of a file"
    IMPORTS_DISABLED = "imports are disabled on this site"
    IMPORT_NO_URL = "give the URL of a repository, an archive or a file"
    IMPORT_HOST_REFUSED = "imports from {host} are not allowed"
    NOT_A_BRANCH = "{branch!r} is not a branch"
    NOT_A_FILE_PATH = "{path!r} is not a path of a file"
    IMPORT_ONLY_HTTPS = "repositories are fetched only over https"
    NOT_A_HOST = "{host!r} is not a host name"
    IMPORT_QUERY = "the URL of a repository must not have a query (?)"
    IMPORT_BRANCH = "only repositories have branches"
    IMPORT_FILE_NAME = "the URL must end with the name of a file"
    IMPORT_TOKEN_OF_REPOSITORY = "only repositories can be fetched with a token"
    IMPORT_TOKEN = "a token has 1 to {limit} printable ASCII characters without spaces"
    NOT_A_FOLDER_PATH = "{path!r} is not a path in a folder"
    NOT_A_SESSION_PATH = "{path!r} is not a path in a session"
    IMPORT_HIDDEN_FOLDER = "the name of the folder must not begin with a dot"
    NO_SUCH_IMPORT = "there is no such import"
    IMPORT_TARGET = "give either a new folder or an existing one"
    NO_IMPORT = "there is no import {name!r}, or you may not see it"
    TOO_MANY_IMPORTS = (
        "the user has {limit} imports that have not ended; wait for them or cancel some"
    )
    IMPORT_REMOVED = "the import no longer exists"

    # Custom images and recipes
    CUSTOM_IMAGE_NAME = "{name!r} is not a valid name: use 4 to 32 letters, digits, - and _"
    TOO_MANY_LABELS = "at most {limit} labels are allowed"
    LABEL_NOT_VALID = "label {name!r} is not valid"
    LABEL_OF_PLATFORM = "label {name!r}: labels with {prefix} belong to the platform"
    STEP_NOT_ALLOWED = "{word} is not allowed; use RUN, ENV, WORKDIR and USER"
    RECIPE_EMPTY = "a recipe has at least one of: {names}"
    TOO_MANY_PACKAGES = "{path} has more than {limit} packages"
    TOO_MANY_STEPS = "{path} has more than {limit} steps"
    STEP_WITHOUT_VALUE = "{word} has no value"
    STEP_OPTIONS = "options of RUN are not allowed"
    STEP_HERE_DOCUMENT = "here-documents are not allowed"
    STEP_ENV = "ENV must be NAME=VALUE, one variable each"
    RECIPE_FILE = "{name!r} is not a file of a recipe; use: {names}"
    RECIPE_FILE_TOO_LONG = "{name} has more than {limit} KiB, or a NUL character"
    STEP_FROM = "the only image is `FROM {name}`, in the first line"
    STEP_QUOTES = "{word} may not contain quotes, spaces, $ and \\"
    STEP_ENV_QUOTES = "ENV must be NAME=VALUE, one variable each; use quotes"
    PACKAGE_NAME = "{path}, line {line}: {word!r} is not the name of a package"
    RECIPE_LINE = "{path}, line {line}: {parts}"
    PARSER_DIRECTIVE = "{path}, line {line}: parser directives are not allowed"

    # Registries and images
    REGISTRY_URL = (
        "{url!r} is not the URL of a registry, such as https://registry.example.org; it has no "
        "path, user name or query"
    )
    NO_PORT = "there is no port {port}"
    REGISTRY_WITHOUT_LIST = (
        "a registry of the kind {kind} does not list its repositories; name them"
    )
    NOT_A_REPOSITORY = "{name!r} is not a repository such as team/python"
    NOT_AN_IMAGE_PATTERN = "{pattern!r} is not a pattern such as team/*:3.*"
    NOT_IN_PROJECT_OF_IMAGE = "you are not a member of the project of the image"
    COMMIT_NOT_RUNNING = "session {name} is {status}; only running sessions can be committed"
    COMMIT_ONLY_INTERACTIVE = "only interactive sessions with one kernel can be committed"
    COMMIT_ONLY_IMAGES = "only sessions that run an image can be committed"
    RECIPES_DISABLED = "this installation does not build images from recipes"
    IMAGE_NOT_PUBLISHABLE = "only a completed image that is not public can be published"
    PULL_NO_AGENT = (
        "resource group {group} has no Docker agent for {name} ({architecture}) that is alive"
    )
    IMAGE_WITHOUT_SBOM = "image {name} has no SBOM"
    SBOM_NOT_PULLED = (
        "no machine in operation has image {name}; its SBOM can be read after the image has "
        "been pulled"
    )
    SBOM_TIMEOUT = "agent {agent} did not return the SBOM of image {name} within {limit_seconds}"
    NO_IMAGE = "there is no image {name!r}"
    IMAGE_AMBIGUOUS = "image {name!r} exists for {names}; use its id"
    REGISTRY_NEEDS_HTTPS = "a registry with a password needs an https URL"
    CERTIFICATE_WITH_KEY = "the CA certificate must not contain a private key"
    CERTIFICATE_NOT_VALID = (
        "the CA certificate is not valid; it begins with -----BEGIN CERTIFICATE-----"
    )
    PASSWORD_OF_OTHER_HOST = "the password belongs to the previous host; enter one for the new host"
    SCAN_RUNNING = "a scan of the registry is running; cancel it first"
    SCAN_HOST_REFUSED = "scans of {host} are not allowed here"
    NO_CUSTOM_IMAGE = "there is no custom image {name}"
    CUSTOM_IMAGE_TAKEN = "you have a custom image {name} already; choose another name"
    COMMIT_RUNNING = "the session is being committed already"
    COMMIT_NOT_DELETABLE = "the session is being committed; cancel the commit first"
    CUSTOM_IMAGE_EXISTS = "there is a custom image {name} already"
    IMAGE_EXISTS = "image {name} for {architecture} already exists"
    IMAGE_NAME_TAKEN = "an image with that name and architecture already exists"
    ALIAS_EXISTS = "image alias {alias} already exists"
    IMAGE_REMOVED = "the image no longer exists"
    NO_IMAGE_OR_ALIAS = "there is no image or alias {name}"
    NO_ALIAS = "there is no image alias {alias}"
    REGISTRY_EXISTS = "a registry with this name, or for {host}, already exists"
    NO_REGISTRY = "there is no such image registry"
    TOO_MANY_REGISTRIES = "there are already {count} registries; delete one first"
    PROJECT_REMOVED = "a project no longer exists"

    # Pipelines: names and limits
    PIPELINE_EXISTS = "you have a pipeline {name!r} already"
    PROJECT_PIPELINE_EXISTS = "the project has a pipeline {name!r} already"
    TOO_MANY_PIPELINES = "you have {limit} pipelines; delete some first"
    PROJECT_TOO_MANY_PIPELINES = "the project has {limit} pipelines; delete some first"
    SCHEDULE_EXISTS = "the pipeline has a schedule {name!r} already"
    TRIGGER_EXISTS = "the pipeline has a trigger {name!r} already"
    TOO_MANY_SCHEDULES = "pipeline {name} has {limit} schedules; delete some"
    TOO_MANY_TRIGGERS = "pipeline {name} has {limit} triggers; delete some"
    USER_CUSTOM_IMAGE_QUOTA = "you may have at most {limit:custom image}; delete an old one"
    PROJECT_CUSTOM_IMAGE_QUOTA = (
        "the project may have at most {limit:custom image}; delete an old one"
    )

    # Changes that the status does not allow
    COMMIT_TRANSITION = "a commit that is {commit_status} cannot be {event}"
    IMPORT_TRANSITION = "an import that is {import_status} cannot be {event}"
    SCAN_TRANSITION = "a scan that is {scan_status} cannot be {event}"
    OTHER_SCAN = "another scan has begun"

    # URLs of sources of imports, webhooks and callbacks
    URL_PROBLEM = "{field} {url!r}: {parts}"
    URLS_DISABLED = "callbacks are disabled on this hub; use /events instead"
    URL_TOO_LONG = "it has {size} characters, at most {limit} are allowed"
    URL_CHARACTERS = "only printable ASCII is allowed; encode other characters as %XX"
    NOT_A_URL = "it is not a URL such as https://example.org/path"
    URL_SCHEME = "it must begin with http:// or https:// and a host"
    URL_CREDENTIALS = "it must not contain a user name or password"
    URL_FRAGMENT = "it must not have a fragment (#)"
    URL_TARGETS = "this hub allows callbacks only to {names}"
    URL_ADDRESS = "the address is not public; an administrator can allow its network"

    # YAML files
    NOT_A_MAPPING = "{name} must be a mapping of keys and values"
    KEY_NOT_A_STRING = "a key of {name} is not a string"
    KEY_TWICE = "{name} has the key {key} twice"
    NOT_A_STRING = "{key} must be a string"
    NUMBER_OUT_OF_RANGE = "{key} must be a number from {lowest} to {highest}"
    NOT_WHOLE = "{key} must be a whole number"
    NOT_A_BOOLEAN = "{key} must be true or false"
    UNKNOWN_KEY = "{name} has no key {key!r}"
    FILE_EMPTY = "the file is empty"
    YAML_CHARACTERS = "the file has characters that YAML does not allow"
    YAML_SYNTAX = "not valid YAML: {message}"
    TEXT_TOO_LONG = "{name} has more than {limit} bytes, or a NUL"
    TEXT_CHARACTERS = "{name} has characters that are not valid"
