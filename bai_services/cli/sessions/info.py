"""`bai session info`: a session on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from bai_services.core.resources import CPU, MEM, family_name
from bai_services.core.sessions.idle import WARNING_TIME
from bai_services.core.sessions.idle_checks.checkers import CheckerType, CheckStatus
from bai_services.core.sessions.lifecycle import ENDED, Result, SessionType, Status

from .. import output, units
from ..command import Connection, connected, example, json_option, segment, verbose_option
from ..screen import Screen
from ..text import printable
from .wait_reasons import position_and_reasons, starts_text

STATUS_STYLES: Mapping[str, str] = {
    Status.RUNNING: "green",
    Status.ERROR: "red",
    Status.TERMINATED: "dim",
    Status.CANCELLED: "dim",
}


@click.command(epilog=example("bai session info my-lab", "bai session info my-lab -v"))
@click.argument("name")
@verbose_option
@json_option
@connected
async def info(connection: Connection, name: str, *, verbose: bool, as_json: bool) -> None:
    """Show one session, by name or id."""
    session = await connection.client.get(f"/sessions/{segment(name)}")
    if as_json:
        output.print_json(session)
    elif verbose:
        addresses = {key: connection.address(session[key]) for key in ("url", "page")}
        rules = "\n".join(_idle_rules(session))
        output.print_fields({**session, **addresses, "idle_checks": rules}, as_json=False)
    else:
        session_screen(connection, session).print(output.console())


def session_screen(connection: Connection, session: Mapping[str, Any]) -> Screen:
    """Return the screen of a session; ``session`` is a response of the REST API."""
    screen = Screen(_title(session))
    # The profile has no user name if the credential comes from the environment.
    if connection.profile.username not in ("", session["owner"]):
        screen.add("Owner", session["owner"])
    if session["status"] == Status.PENDING:
        _add_queue(screen, session)
    else:
        screen.add("Reason", units.with_local_times(session["status_info"]))
    location = f" on {session['agent']}" if session["agent"] else f" in {session['resource_group']}"
    screen.add("Image", session["image"] + location)
    _add_resources(screen, session)
    if session["cluster_size"] > 1:
        kernels = ", ".join(
            f"{kernel['hostname']} on {kernel['agent']}" if kernel["agent"] else kernel["hostname"]
            for kernel in session["kernels"]
        )
        size = f"{session['cluster_size']} kernels, {session['cluster_mode']}"
        screen.add("Cluster", f"{size}: {kernels}" if kernels else size)
    screen.add("Folders", "\n".join(map(_mount, session["mounts"])))
    screen.add("Command", session["startup_command"])
    if session["type"] == SessionType.BATCH and session["status"] in ENDED:
        code = _exit_code(session)
        screen.add("Result", session["result"] + ("" if code is None else f", exit code {code}"))
    _add_end(screen, session)
    _add_elasticity(screen, session)
    _add_preemption(screen, session)
    for notice in _other_notices(session):
        screen.add("Note", units.with_local_times(notice))
    if session["status"] not in ENDED:
        is_usable = session["status"] == Status.RUNNING and session["type"] != SessionType.BATCH
        path = session["url"] if is_usable else session["page"]
        screen.add("Open" if is_usable else "Page", connection.address(path))
    return screen


def status_text(session: Mapping[str, Any]) -> str:
    """Return the status of a session; if its command has failed, ``FAILED`` and the exit code.

    An interactive session that is stopped by a rule has not failed.
    """
    is_failed = session["type"] == SessionType.BATCH and session["result"] == Result.FAILURE
    if session["status"] != Status.TERMINATED or not is_failed:
        return str(session["status"])
    code = _exit_code(session)
    return "FAILED" if code is None else f"FAILED ({code})"


def _exit_code(session: Mapping[str, Any]) -> int | None:
    """Return the exit code, if it shows how the session ended.

    A session that was stopped can also end with the code 0, but this is not a success.
    """
    code: int | None = session["exit_code"]
    return None if code == 0 and session["result"] != Result.SUCCESS else code


def _title(session: Mapping[str, Any]) -> Text:
    status, text = session["status"], status_text(session)
    style = STATUS_STYLES.get(status, "yellow") if text == status else "red"
    title = Text(printable(session["name"]), style="bold")
    title.append("  ● ", style=f"not bold {style}").append(text, style=style)
    if status in ENDED:
        ran = units.since(session["started_at"], session["terminated_at"])
        when = units.relative_text(session["terminated_at"])
        title.append(f" {when}" + (f", ran {ran}" if ran else ""), style="not bold")
    else:
        begin = session["started_at"] or session["scheduled_at"] or session["created_at"]
        title.append(f" {units.since(begin)}", style="not bold")
    details = f"{session['type']} · {session['domain']}/{session['project']}"
    return title.append(f"   {details}", style="not bold dim")


def _add_queue(screen: Screen, session: Mapping[str, Any]) -> None:
    position, *reasons = position_and_reasons(session)
    screen.add("Queue", f"{position}, priority {session['priority']}")
    screen.add("Reason", "\n".join(reasons))
    screen.add("Starts", starts_text(session["estimated_start"]))
    screen.add("Details", f"bai session why {session['name']}")


def _add_resources(screen: Screen, session: Mapping[str, Any]) -> None:
    requested, usage = session["requested"], session["usage"]
    is_cluster = session["cluster_size"] > 1
    suffix = " each" if is_cluster else ""
    cpu, mem = requested.get(CPU, ""), units.memory(requested.get(MEM, ""))
    # ``usage`` covers only the main kernel, so do not show it for a session with several kernels.
    if session["status"] == Status.RUNNING and not is_cluster:
        if cpu and usage.get("cpu_cores") is not None:
            cpu = f"{usage['cpu_cores']:.2f} of {cpu}"
        if mem and usage.get("mem_bytes") is not None:
            mem = f"{units.size(usage['mem_bytes'])} of {mem}"
    screen.pair(("CPU", cpu + suffix if cpu else ""), ("Memory", mem + suffix if mem else ""))
    if session["devices"]:
        for label, text in map(_device, session["devices"]):
            screen.add(label, text)
    else:
        for slot, amount in requested.items():
            if slot not in (CPU, MEM):
                family, _, kind = slot.partition(".")
                label = family_name(family)
                screen.add(label, f"{amount} ({slot})" + suffix)


def _device(device: Mapping[str, Any]) -> tuple[str, str]:
    """Return the label and the text of an allocated device or share of a device."""
    label = family_name(str(device["family"]))
    model = "simulated" if device["is_simulated"] else device["model"]
    parts = [f"{device['share']} {model}"]
    if device["memory_bytes"] is not None:
        memory = units.size(device["memory_bytes"])
        used = device["used_memory_bytes"]
        parts.append(memory if used is None else f"{units.size(used)} of {memory}")
    if device["utilization_percent"] is not None:
        parts.append(f"{device['utilization_percent']:.0f} % busy")
    level = device["enforcement"]
    if level is None:
        parts.append("enforcement unknown")
    else:
        parts.append("not enforced" if level == "none" else f"enforced: {level}")
    return label, ", ".join(parts)


def _mount(mount: Mapping[str, Any]) -> str:
    inside = f"/{mount['subpath']}" if mount["subpath"] else ""
    return f"{mount['vfolder']}{inside} → {mount['path']} ({mount['permission']})"


def _add_end(screen: Screen, session: Mapping[str, Any]) -> None:
    """Add the limits of the session, and the coming stop as `bai session ls` shows it."""
    stop = coming_stop(session)
    first = (session["end_rule"] or {}).get("ends_at") if stop else None
    ends, idle = (
        # Omit the time of the coming stop here, because it is shown below with its reason.
        "" if session[name] == first else units.relative_text(session[name])
        for name in ("ends_at", "idle_ends_at")
    )
    screen.pair(("Ends", ends), ("Idle stop", f"{idle} unless the session is used" if idle else ""))
    screen.add("Stops", stop)
    for rule in _idle_rules(session):
        # A coming stop is shown with its rule.
        if not (stop and rule.startswith(session["end_rule"]["reason"])):
            screen.add("Idle rule", rule)


def _idle_rules(session: Mapping[str, Any]) -> list[str]:
    """Return the idle checkers that may stop a running session: each rule, and how close it is."""
    if session["status"] != Status.RUNNING:
        return []
    return [
        f"{check['reason']}: {_idle_state(check)}"
        for check in session["idle_checks"]
        if not check["is_dry_run"]
    ]


def _idle_state(check: Mapping[str, Any]) -> str:
    if check["is_excluded"]:
        return "the session is excluded"
    end = check["earliest_end_at"]
    if end is None:
        judged_from = check["judged_from"]
        if judged_from is not None and units.is_ahead(judged_from):
            when = units.relative_text(judged_from)
            if check["kept_alive_at"] is not None:
                return f"kept alive; judged again {when}"
            if check["status"] == CheckStatus.NOT_CHECKED:
                return f"not judged yet; judged {when}"
        if check["type"] == CheckerType.NETWORK and check["status"] == CheckStatus.NOT_CHECKED:
            return "not judged before the session reports its activity"
        states = {CheckStatus.ACTIVE: "in use", CheckStatus.IDLE: "only while sessions wait"}
        return states.get(check["status"], "not judged now, because activity or usage is unknown")
    unless = "" if check["type"] == CheckerType.LIFETIME else " unless it is used"
    warning = check["earliest_warning_at"]
    is_ahead = warning is not None and units.is_ahead(warning)
    warned = f"; first warning {units.relative_text(warning)}" if is_ahead else ""
    return f"stops {_when(end)}{unless}{warned}"


def _when(end: str) -> str:
    """Return the time of a stop relative to now. A stop that is due follows within a second."""
    return units.relative_text(end) if units.is_ahead(end) else "now"


def _other_notices(session: Mapping[str, Any]) -> list[str]:
    """Return the notices of a session without those about the stops and rules that are shown."""
    rules = tuple(
        check["reason"]
        for check in session["idle_checks"]
        if check["reason"] and not check["is_dry_run"]
    )
    notices = [notice for notice in session["notices"] if not notice.startswith(rules)]
    if session["preemption"] is not None or not coming_stop(session):
        return notices
    rule = session["end_rule"]["reason"].partition(":")[0]
    return [notice for notice in notices if notice.partition(":")[0] != rule]


def _add_elasticity(screen: Screen, session: Mapping[str, Any]) -> None:
    elasticity = session["elasticity"]
    if elasticity is not None and session["status"] not in ENDED:
        least, most = units.slots(elasticity["minimum"]), units.slots(elasticity["preferred"])
        screen.add("Elastic", f"from {least} to {most}")


def _add_preemption(screen: Screen, session: Mapping[str, Any]) -> None:
    if not session["is_preemptible"] and session["status"] not in ENDED:
        screen.add("Preemption", "never")
    if session["restart_count"]:
        screen.add("Restarts", f"{session['restart_count']} after preemption")


def status_detail(session: Mapping[str, Any]) -> str:
    """Return one text about the state of a session: why it is pending, will stop or has ended."""
    if session["status"] == Status.PENDING:
        return "; ".join(position_and_reasons(session)[1:]) or session["status_info"]
    stop = coming_stop(session)
    return f"stops {stop}" if stop else units.with_local_times(session["status_info"])


def coming_stop(session: Mapping[str, Any]) -> str:
    """Return when and why a running session is stopped soon; empty if no stop is near."""
    if session["status"] != Status.RUNNING:
        return ""
    if preemption := stop_text(session):
        return preemption
    rule = session["end_rule"]
    ends_at = units.parse_time(rule and rule["ends_at"])
    if ends_at is None or ends_at - datetime.now(UTC) > WARNING_TIME:
        return ""
    return f"{_when(rule['ends_at'])}: {units.with_local_times(rule['reason'])}"


def stop_text(session: Mapping[str, Any]) -> str:
    """Return when and why a session is preempted; empty if no stop was announced."""
    preemption = session["preemption"]
    if preemption is None:
        return ""
    then = ", then waits in the queue" if preemption["mode"] == "reschedule" else ""
    when = _when(preemption["stops_at"])
    return f"{when}{then}: {units.with_local_times(preemption['reason'])}"


def next_commands(session: Mapping[str, Any]) -> Iterable[str]:
    """Return the most likely next commands for a session."""
    name = session["name"]
    if session["status"] in ENDED:
        return (f"bai session logs {name}",)
    if session["type"] == SessionType.BATCH:
        return (f"bai session logs {name} --follow", f"bai session rm {name}")
    if session["status"] == Status.RUNNING:
        return (f"bai ssh {name}", f"bai session rm {name}")
    return (f"bai session wait {name}", f"bai session rm {name}")
