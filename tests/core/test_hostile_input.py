"""For hostile text, each parser of ``core`` quickly returns a value or raises a known error."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import pkgutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bai_services.core
from bai_services.core import (
    audit,
    client_networks,
    display_text,
    durations,
    ip_addresses,
    listing,
    names,
    resources,
    tags,
    user_input,
)
from bai_services.core.accounts import (
    browser_sign_ins,
    one_time_codes,
    passwords,
    sign_ups,
    signature,
    ssh_keys,
)
from bai_services.core.apps import shares as app_shares
from bai_services.core.bounded_yaml import load_yaml
from bai_services.core.cluster import (
    device_sharing,
    devices,
    egress,
    group_options,
    image_labels,
    joining,
    manifests,
    recipes,
    registries,
    reported_facts,
    sbom,
)
from bai_services.core.cluster import (
    model as cluster,
)
from bai_services.core.cluster.storage_checks import storage_problems
from bai_services.core.errors import BaiError, InvalidRequest
from bai_services.core.folders import mounts
from bai_services.core.folders import storage_hosts as hosts
from bai_services.core.folders import vfolders as vfolder
from bai_services.core.imports import sources
from bai_services.core.installation import findings
from bai_services.core.models import cards, imports
from bai_services.core.notifications import timing
from bai_services.core.operations.configuration import CHANGEABLE
from bai_services.core.pipelines import conversion, fasttrack, foreign
from bai_services.core.pipelines import elyra as pipeline_elyra
from bai_services.core.pipelines import parameters as pipeline_parameters
from bai_services.core.pipelines import parsing as pipeline_parsing
from bai_services.core.pipelines import triggers as pipeline_triggers
from bai_services.core.pipelines.definition import (
    Operator,
    Parameter,
    ParameterType,
    PipelineDefinition,
)
from bai_services.core.scheduling.replay import history, openb, policies, swf, workload
from bai_services.core.serving import chats, definition, runtime_metrics, scaling_replay
from bai_services.core.serving import settings as serving_settings
from bai_services.core.serving.autoscaling import ScheduledBounds
from bai_services.core.serving.deployment_config import parse_deployment_config
from bai_services.core.serving.names import check_endpoint_name
from bai_services.core.serving.service_definition import parse_service_definition
from bai_services.core.serving.trial import cause_in_log, last_lines
from bai_services.core.sessions import (
    batch,
    callbacks,
    dependencies,
    group_request,
    logs,
    suspensions,
)
from bai_services.core.sessions import (
    rules as session_rules,
)
from bai_services.core.sessions import (
    setup as session_setup,
)
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.logs import first_matches
from bai_services.core.sessions.schedules.rules import parse_rule
from bai_services.core.usage import model as usage
from bai_services.core.usage import periods

# Maximum CPU time of one parser call. The slowest parser takes about 0.05 s for the longest text.
CPU_SECONDS = 1.0
NOW = datetime(2030, 1, 1, tzinfo=UTC)
KEY = b"k" * 32
SOURCE = sources.ImportSource(sources.SourceKind.GIT, "https://example.org/a.git")
PORTS = "ai.backend.service-ports"

Parser = Callable[[str], Any]


def yaml_of(text: str) -> Any:
    try:
        return load_yaml(text)
    except yaml.YAMLError as error:
        raise InvalidRequest(str(error)) from error


def history_with(column: str, text: Any) -> dict[str, Any]:
    known = {"id": "s", "created_at": "2030-01-01T00:00Z", "resource_group": "g", "requested": {}}
    return {"sessions": [{**known, column: text}]}


def _check_recipe(name: str, text: str) -> object:
    return recipes.check_recipe({name: text})


PERIOD = {
    "days": "mon", "starts": "08:00", "ends": "09:00", "zone": "UTC", "min_replicas": 1,
    "max_replicas": 1,
}  # fmt: skip
# Maps each public function of ``core`` that parses a user's text or document to calls that pass a
# hostile text.
ELYRA = json.dumps(
    {
        "primary_pipeline": "a",
        "pipelines": [
            {
                "id": "a",
                "nodes": [
                    {
                        "id": "b",
                        "op": "execute-python-node",
                        "app_data": {"filename": "FILE", "label": "FILE", "dependencies": ["FILE"]},
                    }
                ],
            }
        ],
    }
)
PIPELINE = "version: 1\nname: a\ntasks:\n- name: b\n  command: c\n"
PARSERS: dict[str, list[Parser]] = {
    "cluster.manifests.has_platform_labels": [lambda t: manifests.has_platform_labels({t: t})],
    "cluster.manifests.parse_challenge": [
        manifests.parse_challenge,
        lambda t: manifests.parse_challenge(f"Bearer realm={t}"),
    ],
    "cluster.manifests.parse_config": [
        lambda t: manifests.parse_config({"architecture": t}),
        lambda t: manifests.parse_config({"architecture": "amd64", "config": {"Labels": {t: t}}}),
    ],
    "cluster.manifests.parse_manifest": [
        lambda t: manifests.parse_manifest({"config": {"digest": t}, "layers": []}),
    ],
    "cluster.manifests.parse_repositories": [
        lambda t: manifests.parse_repositories({"repositories": [t]})
    ],
    "cluster.manifests.parse_tags": [lambda t: manifests.parse_tags({"tags": [t]})],
    "cluster.manifests.parse_token": [lambda t: manifests.parse_token({"token": t})],
    "cluster.registries.check_patterns": [lambda t: registries.check_patterns([t])],
    "cluster.registries.check_registry_url": [
        registries.check_registry_url,
        lambda t: registries.check_registry_url(f"https://{t}"),
    ],
    "cluster.registries.check_repositories": [
        lambda t: registries.check_repositories([t], registries.RegistryKind.DOCKER)
    ],
    "cluster.registries.image_name": [
        lambda t: registries.image_name("registry.example.org", t, "1"),
        lambda t: registries.image_name("docker.io", "py", t),
    ],
    "cluster.registries.matches": [
        lambda t: registries.matches("a" * 200, "1", [t[:255]]),
        lambda t: registries.matches(t[:255], t[:127], ["*a*a*a*a*a*b"]),
    ],
    "cluster.registries.repository_and_tag": [
        lambda t: registries.repository_and_tag("docker.io", t)
    ],
    "cluster.registries.registry_host": [registries.registry_host],
    "cluster.registries.repository_may_match": [
        lambda t: registries.repository_may_match("team/py", [t])
    ],
    "apps.shares.check_addresses": [
        lambda t: app_shares.check_addresses(app_shares.Audience.PROJECT, [t])
    ],
    "apps.shares.check_app": [app_shares.check_app],
    "apps.shares.decode_token": [
        lambda t: app_shares.decode_token(KEY, t, app_shares.VisitorTokenKind.ENTRY, NOW),
    ],
    "sessions.batch.check_batch": [
        lambda t: batch.check_batch(SessionType.BATCH, {"startup_command": t}, NOW),
        lambda t: batch.check_batch(
            SessionType.BATCH, {"startup_command": "x", "batch_timeout": t}, NOW
        ),
    ],
    "sessions.batch.parse_start_time": [lambda t: batch.parse_start_time(t, NOW)],
    "sessions.callbacks.AllowedTargets.parse": [
        lambda t: callbacks.AllowedTargets.parse(t, ""),
        lambda t: callbacks.AllowedTargets.parse("", t),
    ],
    "sessions.callbacks.check_url": [
        lambda t: callbacks.check_url(t, callbacks.AllowedTargets()),
        lambda t: callbacks.check_url(f"https://{t}/", callbacks.AllowedTargets()),
    ],
    "sessions.callbacks.AllowedTargets.allows_name": [
        callbacks.AllowedTargets(("*.example.org",)).allows_name
    ],
    "sessions.callbacks.AllowedTargets.allows_address": [callbacks.AllowedTargets().allows_address],
    "ip_addresses.normal_address": [ip_addresses.normal_address],
    "ip_addresses.parse_address": [ip_addresses.parse_address],
    "cluster.model.canonical_image": [cluster.canonical_image],
    "installation.findings.findings_from_json": [
        findings.findings_from_json,
        lambda t: findings.findings_from_json([t, {"level": t}]),
    ],
    "cluster.joining.check_credential": [joining.check_credential],
    "cluster.storage_checks.storage_problems": [lambda t: storage_problems(["a"], {"a": t, t: t})],
    "cluster.model.check_agent_id": [cluster.check_agent_id],
    "cluster.model.check_device": [
        lambda t: cluster.check_device(t, "cuda"),
        lambda t: cluster.check_device("0", t),
    ],
    "sessions.dependencies.check_no_cycles": [
        lambda t: dependencies.check_no_cycles({t: [t, "b"]})
    ],
    "durations.parse_duration": [lambda t: durations.parse_duration(t, "field")],
    "cluster.egress.parse_targets": [
        egress.parse_targets,
        lambda t: egress.parse_targets(f"[::1]:{t}"),
    ],
    "sessions.group_request.check_cluster": [lambda t: group_request.check_cluster(2, t)],
    "cluster.group_options.GroupOptions.of": [
        lambda t: group_options.GroupOptions.of({"pending_timeout": t}),
        lambda t: group_options.GroupOptions.of({t: t}),
        lambda t: group_options.GroupOptions.of({"fair_share": {"weights": {"user": {t: 1}}}}),
    ],
    "cluster.group_options.check_changes": [
        lambda t: group_options.check_changes({t: t}),
        lambda t: group_options.check_changes({"fair_share": {t: {t: None}}}),
    ],
    "cluster.group_options.merged_options": [
        lambda t: group_options.merged_options({t: {t: t}}, {t: {t: None}}),
    ],
    "cluster.group_options.check_options": [lambda t: group_options.check_options({"strategy": t})],
    "folders.storage_hosts.check_hosts": [lambda t: hosts.check_hosts({t: [t]})],
    "cluster.recipes.check_recipe": [
        lambda t: recipes.check_recipe({t: t}),
        *(functools.partial(_check_recipe, name) for name in recipes.FILES),
        lambda t: recipes.check_recipe({"Dockerfile": f"RUN {t}"}),
        lambda t: recipes.check_recipe({"Dockerfile": f"ENV A={t}"}),
    ],
    "cluster.recipes.context_files": [lambda t: recipes.context_files({"apt.txt": t})],
    "cluster.recipes.dockerfile_of": [
        lambda t: recipes.dockerfile_of({"Dockerfile": f"RUN {t}"}, "a", [t])
    ],
    "cluster.sbom.parse_sbom": [
        lambda t: sbom.parse_sbom("a", "a", {t: t}, t),
        lambda t: sbom.parse_sbom(
            "a", "a", {}, json.dumps({"bomFormat": "CycloneDX", "components": [{"name": t}]})
        ),
    ],
    "cluster.sbom.sbom_path": [lambda t: sbom.sbom_path({sbom.SBOM_LABEL: t})],
    "cluster.sbom.unpack_sbom": [sbom.unpack_sbom],
    "cluster.image_labels.check_preopen_ports": [
        lambda t: image_labels.check_preopen_ports([8000], {PORTS: t})
    ],
    "cluster.image_labels.parse_new_labels": [lambda t: image_labels.parse_new_labels({PORTS: t})],
    "cluster.image_labels.parse_labels": [
        lambda t: image_labels.parse_labels({t: t}),
        lambda t: image_labels.parse_labels({PORTS: t}),
        lambda t: image_labels.parse_labels({"ai.backend.resource.min.mem": t}),
        lambda t: image_labels.parse_labels({f"ai.backend.resource.min.{t}": "1"}),
    ],
    "cluster.image_labels.parse_service_ports": [
        image_labels.parse_service_ports,
        lambda t: image_labels.parse_service_ports(t[: image_labels.MAX_LABEL_CHARACTERS]),
        lambda t: image_labels.parse_service_ports(f"app:http:{t[:5000]}"),
    ],
    "listing.ListQuery.parse": [
        lambda t: listing.ListQuery.parse({"limit": t}),
        lambda t: listing.ListQuery.parse({"offset": t, "sort": t}),
    ],
    "sessions.logs.is_timed": [logs.is_timed],
    "sessions.logs.joined_log": [
        lambda t: logs.joined_log([logs.AttemptLog(0, NOW, t, t)], t, 2**20),
        lambda t: logs.joined_log([logs.AttemptLog(n, NOW, t, "x") for n in range(9)], t, 100),
    ],
    "sessions.logs.last_lines": [lambda t: logs.last_lines(t, 10)],
    "sessions.logs.truncated": [lambda t: logs.truncated(t, 100)],
    "sessions.logs.search": [lambda t: logs.search(t, "a")],
    "sessions.logs.without_times": [
        logs.without_times,
        lambda t: logs.without_times("2030-01-01T00:00:00.000000000Z " + t),
    ],
    "display_text.file_name_problem": [display_text.file_name_problem],
    "display_text.text_problem": [
        display_text.text_problem,
        lambda t: display_text.text_problem(t, is_multiline=True),
    ],
    "folders.mounts.check_subpath": [mounts.check_subpath],
    "folders.mounts.mount_path": [
        lambda t: mounts.mount_path("f", t),
        lambda t: mounts.mount_path(t, t),
    ],
    "names.check_email": [names.check_email, lambda t: names.check_email(t + "@a.org")],
    "client_networks.check_networks": [lambda t: client_networks.check_networks([t])],
    "names.check_slug": [lambda t: names.check_slug("domain", t)],
    "names.check_username": [names.check_username],
    "client_networks.is_inside": [lambda t: client_networks.is_inside(t, ["10.0.0.0/8"])],
    "accounts.one_time_codes.canonical_code": [one_time_codes.canonical_code],
    "accounts.one_time_codes.is_one_time_code": [one_time_codes.is_one_time_code],
    "accounts.one_time_codes.is_recovery_code": [one_time_codes.is_recovery_code],
    "accounts.passwords.broken_rules": [lambda t: passwords.broken_rules(t, t, t)],
    "accounts.passwords.check_password": [lambda t: passwords.check_password(t, "u", "e")],
    "scheduling.replay.history.read_history": [
        lambda t: history.read_history(history_with("created_at", t), "f"),
        lambda t: history.read_history(history_with("requested", {"mem": t}), "f"),
        lambda t: history.read_history(history_with("requested", {t: "1"}), "f"),
        lambda t: history.read_history(history_with("cluster_size", t), "f"),
        lambda t: history.read_history({"sessions": [], "agents": [{"id": t, t: t}]}, "f"),
    ],
    "scheduling.replay.openb.read_nodes": [
        lambda t: openb.read_nodes([",".join(openb.NODE_COLUMNS) + "\n", f"a,{t},1,0\n"], "f"),
        lambda t: openb.read_nodes([t], "f"),
    ],
    "scheduling.replay.openb.read_pods": [
        lambda t: openb.read_pods([",".join(openb.POD_COLUMNS) + "\n", f"a,{t},1,0,0"], "f")
    ],
    "scheduling.replay.policies.ReplayPolicy.of": [
        lambda t: policies.ReplayPolicy.of({"scheduler": t}, "p"),
        lambda t: policies.ReplayPolicy.of(t, "p"),
    ],
    "serving.scaling_replay.parse_scaling_rule": [
        scaling_replay.parse_scaling_rule,
        *(
            lambda t, name=name: scaling_replay.parse_scaling_rule(f"{name}={t}")
            for name in ("min", "max", "target", "utilization", "idle")
        ),
    ],
    "serving.scaling_replay.read_arrivals": [
        lambda t: scaling_replay.read_arrivals(t, "f"),
        lambda t: scaling_replay.read_arrivals("{" + t, "f"),
        lambda t: scaling_replay.read_arrivals(f"at,seconds\n1,{t}", "f"),
        lambda t: scaling_replay.read_arrivals(json.dumps({"at": t, "seconds": 1}), "f"),
    ],
    "scheduling.replay.swf.read_swf": [
        lambda t: swf.read_swf([f"; MaxProcs: {t}"], "f"),
        lambda t: swf.read_swf([t], "f"),
        lambda t: swf.read_swf(["; MaxProcs: 8", " ".join(["1"] * 7 + [t] + ["1"] * 10)], "f"),
    ],
    "scheduling.replay.workload.check_new": [lambda t: workload.check_new("id", t, {t})],
    "scheduling.replay.workload.whole": [lambda t: workload.whole({"c": t}, "c")],
    "resources.Caps.parse": [lambda t: resources.Caps.parse({t: t})],
    "resources.parse_cap": [lambda t: resources.parse_cap("cpu", t)],
    "resources.ResourceSlots.parse": [lambda t: resources.ResourceSlots.parse({t: t})],
    "resources.family_of": [resources.family_of],
    "resources.parse_amount": [
        lambda t: resources.parse_amount("cpu", t),
        lambda t: resources.parse_amount("mem", t),
        lambda t: resources.parse_amount("cuda.shares", t),
        lambda t: resources.parse_amount(t, "1"),
    ],
    "resources.slot_type": [resources.slot_type],
    "resources.is_slot_name": [resources.is_slot_name],
    "sessions.suspensions.report_from_json": [
        lambda t: suspensions.report_from_json({"hook_message": t, "saved_documents": [t]})
    ],
    "sessions.rules.check_environ": [
        lambda t: session_rules.check_environ({"A": t}),
        lambda t: session_rules.check_environ({t: "a"}),
    ],
    "sessions.rules.check_session_name": [session_rules.check_session_name],
    "sessions.rules.hub_server_name": [lambda t: session_rules.hub_server_name(t, "0" * 32)],
    "sessions.rules.session_name_from": [session_rules.session_name_from],
    "sessions.setup.check_path": [session_setup.check_path],
    "sessions.setup.check_script": [lambda t: session_setup.check_script(t, 1)],
    "sessions.setup.check_variables": [lambda t: session_setup.check_variables([], {t: t})],
    "sessions.setup.mask": [
        lambda t: session_setup.mask(t, [t]),
    ],
    "cluster.device_sharing.Sharing.from_facts": [
        lambda t: device_sharing.Sharing.from_facts({"enforcement": t, "shares": {"least": t}}),
        lambda t: device_sharing.Sharing.from_facts({"shares": t}),
    ],
    "audit.changed_values": [lambda t: audit.changed_values({"name": ""}, {"name": t})],
    "audit.shortened": [audit.shortened],
    "usage.model.unit_of": [usage.unit_of],
    "operations.configuration.ChangeableSetting.parse": [each.parse for each in CHANGEABLE],
    "sessions.logs.first_matches": [
        lambda t: first_matches(t, "a", 10, 100),
        lambda t: first_matches(t, t, 10, 100),
    ],
    "notifications.timing.read_time": [lambda t: timing.read_time(t, "digest_time")],
    "usage.periods.read_time": [lambda t: periods.read_time("since", t, ZoneInfo("Asia/Seoul"))],
    "usage.periods.zone_of": [periods.zone_of],
    "accounts.sign_ups.check_email_domain": [
        lambda t: sign_ups.check_email_domain(t, ["example.org"])
    ],
    "accounts.browser_sign_ins.note_of": [
        lambda t: browser_sign_ins.note_of(t, t),
        lambda t: browser_sign_ins.parse_note(browser_sign_ins.note_of("x on y", t)),
    ],
    "accounts.browser_sign_ins.parse_note": [browser_sign_ins.parse_note],
    "accounts.signature.parse_authorization": [signature.parse_authorization],
    "accounts.ssh_keys.check_key_name": [ssh_keys.check_key_name],
    "accounts.ssh_keys.parse_public_key": [
        ssh_keys.parse_public_key,
        lambda t: ssh_keys.parse_public_key("ssh-rsa " + t),
    ],
    "pipelines.triggers.check_call": [
        lambda t: pipeline_triggers.check_call("s", t, "v1=0", b"", NOW),
        lambda t: pipeline_triggers.check_call("s", "1893456000", t, b"", NOW),
    ],
    "pipelines.triggers.parse_pattern": [pipeline_triggers.parse_pattern],
    "pipelines.triggers.check_references": [
        lambda t: pipeline_triggers.check_references(pipeline_triggers.TriggerKind.FILE, {t: t}),
        lambda t: pipeline_triggers.check_references(
            pipeline_triggers.TriggerKind.FILE, {"a": "$" + t}
        ),
    ],
    "pipelines.triggers.parameters_of": [
        lambda t: pipeline_triggers.parameters_of({t: "$FILE"}, {"FILE": t}),
    ],
    "sessions.schedules.rules.parse_rule": [
        lambda t: parse_rule(t, "start"),
        lambda t: parse_rule(f"mon {t}", "start"),
        lambda t: parse_rule(f"{t} 8 * * 1-5", "start"),
    ],
    "imports.sources.check_source": [
        lambda t: sources.check_source({"repo": t}, callbacks.AllowedTargets()),
        lambda t: sources.check_source(
            {"repo": f"https://github.com/{t}"}, callbacks.AllowedTargets()
        ),
        lambda t: sources.check_source(
            {"repo": "https://a.b/c.git", "branch": t}, callbacks.AllowedTargets()
        ),
        lambda t: sources.check_source(
            {"repo": "https://a.b/c.git", "path": t}, callbacks.AllowedTargets()
        ),
    ],
    "imports.sources.check_token": [lambda t: sources.check_token(t, SOURCE)],
    "imports.sources.file_name": [sources.file_name],
    "imports.sources.open_path": [
        lambda t: sources.open_path(SOURCE, "folder", t, ""),
        lambda t: sources.open_path(SOURCE, "folder", "", t),
    ],
    "models.cards.card_content": [
        lambda t: cards.card_content(t, t),
        lambda t: cards.card_content(f"models: [{{metadata: {{title: {t}}}}}]", ""),
        lambda t: cards.card_content(f"models: [{{metadata: {{min_resource: {t}}}}}]", ""),
    ],
    "models.cards.version_key": [cards.version_key],
    "models.cards.latest": [lambda t: cards.latest({"a": t, "b": "1"})],
    "models.imports.check_source": [
        lambda t: imports.check_source({"repository": t}, callbacks.AllowedTargets()),
        lambda t: imports.check_source({"url": t}, callbacks.AllowedTargets()),
        lambda t: imports.check_source({"url": f"https://a.org/{t}"}, callbacks.AllowedTargets()),
        lambda t: imports.check_source(
            {"repository": "a/b", "revision": t, "patterns": [t]}, callbacks.AllowedTargets()
        ),
        lambda t: imports.check_source(
            {"url": "https://a.org/x", "sha256": t}, callbacks.AllowedTargets()
        ),
    ],
    "models.imports.checksum_of_etag": [imports.checksum_of_etag],
    "models.imports.chosen_files": [
        lambda t: imports.chosen_files([imports.RemoteFile("x" * 500)], [t[: imports.MAX_PATH]], 1)
    ],
    "models.imports.host_of": [imports.host_of],
    "models.imports.is_safe_path": [imports.is_safe_path],
    "models.imports.parse_info": [
        lambda t: imports.parse_info({"sha": t}),
        lambda t: imports.parse_info({"sha": "a" * 40, "siblings": [{"rfilename": t}]}),
        lambda t: imports.parse_info({"sha": "a" * 40, "siblings": [], "tags": [t], "author": t}),
    ],
    "models.imports.path_of": [imports.path_of],
    "bounded_yaml.load_yaml": [yaml_of],
    "serving.chats.chat_size": [lambda t: chats.chat_size([{"messages": [{"text": t}]}])],
    "serving.chats.message_count": [lambda t: chats.message_count([{"messages": t}])],
    "serving.chats.title_of": [
        lambda t: chats.title_of([{"messages": [{"role": "user", "text": t}]}])
    ],
    "pipelines.parsing.parse_pipeline": [
        pipeline_parsing.parse_pipeline,
        lambda t: pipeline_parsing.parse_pipeline(f"version: 1\nname: {t}"),
        lambda t: pipeline_parsing.parse_pipeline(f"{PIPELINE}  retry_delay: {t}"),
        lambda t: pipeline_parsing.parse_pipeline(f"{PIPELINE}  mounts: [{t}]"),
        lambda t: pipeline_parsing.parse_pipeline(f"{PIPELINE}  needs: [{t}]"),
        lambda t: pipeline_parsing.parse_pipeline(f"{PIPELINE}  outputs: [{t}]"),
        lambda t: pipeline_parsing.parse_pipeline(
            f"version: 1\nname: a\nparameters:\n- name: b\n  type: list\n  default: {t}"
        ),
    ],
    "pipelines.fasttrack.convert_fasttrack": [
        lambda t: fasttrack.convert_fasttrack(t, "a"),
        lambda t: fasttrack.convert_fasttrack(f"name: {t}\ntasks: [{{name: a}}]", t),
        lambda t: fasttrack.convert_fasttrack(f"tasks:\n- name: a\n  command: {t}", "a"),
        lambda t: fasttrack.convert_fasttrack(f"tasks:\n- name: {t}\n  resources: {t}", "a"),
        lambda t: fasttrack.convert_fasttrack(f"tasks:\n- name: a\n  mounts: [{t}]", "a"),
        lambda t: fasttrack.convert_fasttrack(f"environment: {{envs: {{A: {t}}}}}", "a"),
    ],
    "pipelines.conversion.format_of": [conversion.format_of],
    "pipelines.conversion.convert": [
        *(lambda t, f=target: conversion.convert(t, t, f) for target in conversion.Format),
        *(
            lambda t, f=target: conversion.convert(f"{PIPELINE}  command: {t}", "a", f)
            for target in conversion.Format
        ),
        lambda t: conversion.convert(
            f"{PIPELINE}  command: python /pipeline/{t}", "a", conversion.Format.ELYRA
        ),
        lambda t: conversion.convert(
            f"{PIPELINE}  command: python /pipeline/a.py\n  resources: {{mem: {t}, cpu: {t}}}",
            "a",
            conversion.Format.ELYRA,
        ),
    ],
    "pipelines.foreign.slug_of": [foreign.slug_of],
    "pipelines.foreign.unique_names": [lambda t: foreign.unique_names([t, t])],
    "pipelines.elyra.convert_elyra": [
        lambda t: pipeline_elyra.convert_elyra(t, t),
        lambda t: pipeline_elyra.convert_elyra(ELYRA.replace("FILE", json.dumps(t)[1:-1]), t),
    ],
    "pipelines.parameters.checked_value": [
        lambda t, kind=kind: pipeline_parameters.checked_value("p", kind, t)
        for kind in ParameterType
    ],
    "pipelines.parameters.comparable": [
        lambda t: pipeline_parameters.comparable(
            Parameter("p", ParameterType.NUMBER), Operator.MORE, t
        ),
    ],
    "pipelines.parameters.resolve": [
        lambda t: pipeline_parameters.resolve(PipelineDefinition("a"), {t: t}),
        lambda t: pipeline_parameters.resolve(
            PipelineDefinition("a", parameters=[Parameter("p")]), {"p": t}
        ),
    ],
    "serving.definition.is_valid_path": [definition.is_valid_path],
    "serving.definition.parse_definition": [
        definition.parse_definition,
        lambda t: definition.parse_definition(f"models:\n- service:\n    port: {t}"),
        lambda t: definition.parse_definition(f"models:\n- name: {t}"),
    ],
    "serving.definition.relative_path": [definition.relative_path],
    "serving.autoscaling.ScheduledBounds.from_json": [
        lambda t: ScheduledBounds.from_json({**PERIOD, "days": t}),
        lambda t: ScheduledBounds.from_json({**PERIOD, "starts": t}),
        lambda t: ScheduledBounds.from_json({**PERIOD, "zone": t}),
    ],
    "serving.runtime_metrics.read_metric": [
        lambda t: runtime_metrics.read_metric(t, "a"),
        lambda t: runtime_metrics.read_metric("a{" + t, "a"),
        lambda t: runtime_metrics.read_metric("a " + t, "a"),
        lambda t: runtime_metrics.read_metric("a{} }\n" * 2_000 + t, "a"),
    ],
    "serving.deployment_config.parse_deployment_config": [
        lambda t: parse_deployment_config(t, "custom"),
        lambda t: parse_deployment_config("environment:\n  image: " + t, "custom"),
        lambda t: parse_deployment_config("environ:\n  a: " + t, "custom"),
    ],
    "serving.service_definition.parse_service_definition": [
        lambda t: parse_service_definition(t, "custom"),
        lambda t: parse_service_definition("[custom.environ]\na = " + t, "custom"),
    ],
    "serving.trial.cause_in_log": [cause_in_log, lambda t: cause_in_log(f"No module named {t}")],
    "serving.trial.last_lines": [last_lines],
    "serving.names.check_endpoint_name": [check_endpoint_name],
    "serving.settings.resolve_settings": [
        lambda t: serving_settings.resolve_settings({"variant": t}),
        lambda t: serving_settings.resolve_settings({"variant": "cmd", "command": t}),
        lambda t: serving_settings.resolve_settings({"rollout": {"strategy": t}, "command": "x"}),
    ],
    "user_input.read_decimal": [user_input.read_decimal],
    "user_input.read_whole": [user_input.read_whole],
    "user_input.shown": [user_input.shown],
    "user_input.without_user_info": [user_input.without_user_info],
    "folders.vfolders.check_name": [vfolder.check_name],
    "folders.vfolders.is_auto_mounted": [vfolder.is_auto_mounted],
    "folders.vfolders.is_reserved": [vfolder.is_reserved],
    "cluster.devices.is_device_slot": [devices.is_device_slot],
    "cluster.devices.part_slot": [lambda t: devices.part_slot("cuda", {"slot": t})],
    "cluster.reported_facts.storable": [reported_facts.storable],
    "cluster.reported_facts.storable_facts": [lambda t: reported_facts.storable_facts({t: [t]})],
    "cluster.reported_facts.kernel_facts": [
        lambda t: reported_facts.kernel_facts({"devices": [{"id": t}], "enforcement": {t: t}})
    ],
    "tags.check_tags": [lambda t: tags.check_tags([t]), lambda t: tags.check_tags([t] * 100)],
}
# Functions that take text from bai-hub itself (including its agents), or values that are already
# parsed.
NOT_FROM_USERS = {
    # Names of resource groups and images from the database, and work items of the manager.
    "cluster.image_store.PruneRequest.from_json",
    "cluster.sbom.SbomRequest.from_json",
    "cluster.registries.is_in_scope",
    "scheduling.machine_demand.machines_needed",
    "scheduling.machine_demand.new_agent",
    "scheduling.machine_demand.provisionable_agents",
    "scheduling.other_groups.in_group",
    "scheduling.overflow.targets",
    # Their arguments come from definitions that a parser has checked.
    "pipelines.parameters.check_count",
    "pipelines.parameters.given_value",
    "pipelines.parameters.values_of",
    "pipelines.requests.directory_of",
    "pipelines.requests.run_directory",
    "pipelines.requests.session_request",
    "pipelines.results.artifact_paths",
    "pipelines.results.notebook_path",
    "pipelines.foreign.cannot",
    "pipelines.foreign.require_known",
    "pipelines.settings.merged",
    "pipelines.writing.yaml_of",
    "pipelines.subpipelines.nested",
    "pipelines.subpipelines.expanded",
    "pipelines.notices.is_of_run",
    # The names of endpoints are checked when they are created.
    "serving.names.EndpointAddresses.path_of",
    # Its arguments come from the settings of the agent.
    "cluster.egress.ruleset",
    # Tested with the parsers that use them.
    "yaml_sections.Section.line_of",
    "yaml_sections.Section.of",
    "yaml_sections.Section.take",
    "yaml_sections.Section.take_bool",
    "yaml_sections.Section.take_number",
    "yaml_sections.Section.take_section",
    "yaml_sections.Section.take_text",
    "yaml_sections.Section.take_whole",
    "yaml_sections.is_encodable",
    "yaml_sections.read_sections",
    "yaml_sections.text_of",
    # Their arguments have been checked by ``parse_pipeline`` and ``resolve``.
    "pipelines.caching.lookup",
    "pipelines.definition.PipelineDefinition.from_json",
    "pipelines.definition.parameters_from_json",
    "pipelines.parameters.is_met",
    "pipelines.parameters.items_of",
    "pipelines.requests.session_id_of",
    "pipelines.states.Plan.of",
    "pipelines.states.observe",
    # Its argument is a signature that ``check_call`` has compared.
    "pipelines.triggers.chain",
    "pipelines.triggers.run_id_of",
    "bounded_yaml.BoundedLoader.compose_node",
    # Its argument is the settings file, which the administrator of the installation writes.
    "cluster.doctor.check_node",
    "cluster.doctor.compare_engines",
    "cluster.doctor.compare_status",
    "cluster.doctor.compare_storage",
    "cluster.doctor.compare_versions",
    "cluster.doctor.unreachable_endpoint",
    # Its argument is the response of the manager to an agent.
    "cluster.storage_checks.StorageCheck.from_json",
    "installation.findings.error",
    "installation.findings.ok",
    "installation.findings.validity",
    "installation.findings.warning",
    "installation.containers.compose_file",
    "installation.containers.dockerfile",
    "installation.containers.stack_file",
    "installation.settings.moved",
    "installation.settings.parse",
    "installation.settings.storage_host",
    # Their arguments were checked when they were stored.
    "serving.names.EndpointAddresses.of",
    "tags.joined",
    "tags.separated",
    "models.cards.fitting",
    "models.cards.satisfies",
    "models.cards.resources_text",
    "models.cards.smallest",
    "models.imports.definition_of",
    "serving.autoscaling.check_rule",
    "serving.latency.merged",
    "serving.latency.quantile",
    "serving.problems.brief",
    "serving.replica_preface.preface",
    "serving.runtime_metrics.MetricReading.load_since",
    "serving.runtime_metrics.is_counter",
    "serving.settings.with_defaults",
    "serving.autoscaling.rule_from_json",
    "serving.settings.RevisionSettings.from_json",
    "accounts.one_time_codes.CodeRules.of",
    "accounts.one_time_codes.CodeRules.parse",
    "accounts.one_time_codes.code_needed",
    "accounts.one_time_codes.code_wrong",
    "accounts.one_time_codes.grouped",
    "notifications.conditions.changes_of",
    "notifications.events.budget_warning",
    "notifications.events.folder_shared",
    "notifications.events.approval_requested",
    "notifications.events.rollout_failed",
    "notifications.events.run_ended",
    "notifications.events.reservation_decided",
    "notifications.events.reservation_requested",
    "notifications.events.session_continues",
    "notifications.events.session_preempted",
    "notifications.events.session_stops",
    "notifications.session_events.event_of",
    "notifications.webhooks.payload",
    # Names and labels of commits are tested in tests/core/cluster/test_custom_images.py, the output
    # of probes in test_image_probe.py beside it.
    *(
        f"cluster.custom_images.{name}"
        for name in (
            "CommitRequest.from_json",
            "check_commit_labels",
            "check_custom_name",
            "custom_image_name",
            "labels_of",
        )
    ),
    *(
        f"cluster.image_probe.{name}"
        for name in (
            "cuda_requirement",
            "derived_labels",
            "is_ngc",
            "needs_parts",
            "parse_environ",
            "parse_probe",
            "python_number",
            "session_environ",
        )
    ),
    "cluster.image_store.read_auth",
    "cluster.registries.api_url",
    "cluster.registries.is_scan_due",
    # Ids, and names of existing users and folders, which were checked when they were created.
    "accounts.user_purges.anonymous_name",
    "accounts.user_purges.name_after_transfer",
    "operations.component_settings.reported",
    "operations.component_settings.setting_text",
    "operations.configuration.configured",
    "operations.periods.require_not_past",
    "scheduling.preemption.texts.preemption_text",
    "usage.model.HourTotals.keep_measured",
    "audit_chain.check",
    "audit_chain.check_end",
    "audit_chain.entry_hash",
    "scheduling.maintenance.may_interrupt",
    "scheduling.maintenance.restriction",
    "scheduling.advance_reservations.both",
    "scheduling.advance_reservations.choose_agents",
    "scheduling.advance_reservations.held_parts",
    "scheduling.advance_reservations.held_restriction",
    "scheduling.advance_reservations.require_suitable",
    "usage.model.Prices.cost",
    "usage.model.Prices.cost_per_hour",
    "sessions.spec.spec_of",
    "usage.model.largest_first",
    "accounts.roles.Visibility.covers",
    "accounts.roles.reach",
    "accounts.roles.reaches",
    "accounts.roles.roles_above",
    "accounts.signature.authorization",
    "accounts.signature.check_body",
    "accounts.signature.sign",
    "apps.shares.check_sharing",
    "coded_text.CodedText.format",
    "coded_text.CodedText.from_json",
    "counts.counted",
    "counts.with_article",
    "record_fields.fields_of",
    "cluster.image_labels.preferred_shared_memory",
    "cluster.devices.check_exclusive",
    "cluster.devices.check_unique",
    "cluster.devices.max_amount",
    "cluster.devices.pool_of",
    "cluster.devices.thousandths",
    "cluster.egress.Chains.of",
    "cluster.group_options.GroupOptions.state",
    "folders.mounts.check_no_overlap",
    "folders.vfolders.not_ready",
    "folders.storage_hosts.missing_permissions",
    "folders.storage_hosts.granted_on",
    "listing.page_of",
    "client_networks.excludes_addresses",
    "resources.ResourceSlots.fits_in",
    "resources.ResourceSlots.get",
    "resources.family_name",
    "resources.format_amount",
    "resources.format_cap",
    "resources.readable_amount",
    "scheduling.caps.ScopeCaps.limit",
    "scheduling.caps.add",
    "scheduling.caps.amount_text",
    "scheduling.caps.highest",
    "scheduling.caps.left",
    "scheduling.caps.needs",
    "scheduling.caps.pending_left",
    "scheduling.caps.pending_violations",
    "scheduling.caps.violation",
    "scheduling.caps.violations",
    "scheduling.replay.comparison.FullComparison.visible_in",
    "scheduling.replay.policies.ReplayPolicy.replay",
    "scheduling.replay.simulate.scopes_of",
    "sessions.resizing.KernelLimits.of",
    "sessions.resizing.is_resizable",
    "sessions.resizing.resized",
    "sessions.resizing.step_of",
    "sessions.callbacks.body_of",
    "sessions.callbacks.secret_of",
    "sessions.callbacks.signature",
    "sessions.group_request.request_of",
    "sessions.kernel_group.cluster_environ",
    "sessions.kernel_group.folder_name",
    "sessions.kernel_group.kernel_end_text",
    "sessions.kernel_group.total_slots",
    "sessions.launch_plan.Injection.from_json",
    "sessions.launch_plan.LaunchPlan.from_json",
    "sessions.launch_plan.Mount.from_json",
    "sessions.lifecycle.end_event",
    "sessions.lost_agents.LostAgentOptions.fence_seconds",
    "sessions.lost_agents.has_stopped",
    # Its argument is written by the agent.
    "sessions.agent_launch.Marker.from_json",
    "sessions.agent_launch.Marker.moved",
    "sessions.agent_launch.is_openable",
    "sessions.agent_launch.runs_on_agent",
    "sessions.logs.appended_since",
    "sessions.rules.check_resources",
    "sessions.rules.fill_slots",
    "sessions.spec.SessionSpec.digest",
    "sessions.spec.SessionSpec.is_given",
    "sessions.spec.default_of",
    "sessions.spec.traits_of",
    "sessions.usage_history.Reading.of",
    "sessions.usage_history.SampleMean.add",
    "sessions.usage_history.SampleMean.sample",
    "sessions.usage_history.Sampler.add",
    "cluster.image_store.digest_state",
    "cluster.image_store.lacks",
    "sessions.setup.SessionSetup.from_json",
    "sessions.setup.check_mounts",
    "sessions.setup.combine",
    "sessions.usage_history.Sampler.unfinished",
    "sessions.usage_history.device_series_of",
    "sessions.usage_history.series_of",
    "user_input.number_text",
    "serving.balancing.WeightedTurns.next",
    "serving.gateway_json.table_from_json",
    "serving.token_limits.digest_of",
    "sessions.idle_checks.checkers.CheckerSettings.from_json",
    "sessions.idle_checks.checkers.metric_family",
    "sessions.idle_checks.checkers.metric_name",
    "sessions.idle_checks.checkers.metric_value_text",
    "sessions.idle_checks.judging.judge",
    "sessions.idle_checks.judging.limit_text",
    "sessions.idle_checks.judging.utilization_rule",
    "sessions.idle_checks.pressure.waiting_for",
    "sessions.idle_checks.usage_table.UsageTable.add",
    "sessions.idle_checks.usage_table.UsageTable.has_metric",
    "sessions.idle_checks.usage_table.UsageTable.keep",
    "sessions.idle_checks.usage_table.UsageTable.rows_of",
    "sessions.idle_checks.usage_table.UsageTable.window",
    "sessions.idle_checks.utilization.SessionRows.window",
}

DIGITS = "9" * 100_000
HOSTILE = [
    "", " ", "\0", "\ud800", "-", "+1", "-1", "1_000", "٣", "²", "１", "nan", "inf", "Infinity",
    "1e400", "1e400000", "1e999999999", "1e-999999999", "0x10", ".", "1.", ".5", "1..2", "1e",
    "0.0001k", "1.5", "9" * 39, "9" * 41, "9" * 4301, DIGITS, "0." + DIGITS, "1" + "0" * 99_999,
    "a" * 100_000, "a" * 99_999 + "!", "a-" * 50_000, "a." * 50_000, "/" * 100_000, "/a" * 50_000,
    "../" * 30_000, "[" * 100_000, ",[" * 50_000, ":" * 100_000, "@" * 100_000, " " * 100_000,
    "1 " * 50_000, "1s" * 50_000, "1" + " " * 99_999, "999999999w", "999999999w" * 10_000,
    "999999999 weeks", "0001-01-01T00:00+23:59", "9999-12-31T23:59-23:59", "2030-13-01",
    "2001:db8::%" + "1" * 50_000, "1.2.3.4/" + "9" * 5000, "::" * 50_000, "AAAA" * 2000,
    "2030-01-01T00:00:00.000000000Z " * 3000, "\n" * 100_000, '"' * 140_001, "[8000,8001]",
    "a" + "," * 99_999, "9007199254740881", "1:2:" + DIGITS, "a:http:" + DIGITS,
]  # fmt: skip


def discovered() -> Iterator[str]:
    """Yield the names of public functions and methods of ``core`` that can take text."""
    root = bai_services.core
    for info in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        if any(part in info.name for part in (".placement", ".queue", ".estimates", ".elastic")):
            continue  # Functions of these packages take values that are already parsed.
        module = importlib.import_module(info.name)
        for name, member in vars(module).items():
            if getattr(member, "__module__", None) != info.name or name.startswith("_"):
                continue
            short = f"{info.name.removeprefix(root.__name__ + '.')}.{name}"
            if inspect.isclass(member):
                for method, value in vars(member).items():
                    function = getattr(value, "__func__", value)
                    if not method.startswith("_") and takes_text(function):
                        yield f"{short}.{method}"
            elif takes_text(member):
                yield short


def takes_text(member: Any) -> bool:
    if not inspect.isfunction(member):
        return False
    parameters = inspect.signature(member).parameters.values()
    return any(
        word in str(parameter.annotation)
        for parameter in parameters
        for word in ("str", "Mapping", "Any", "object")
        if "Callable" not in str(parameter.annotation)
    )


def check(parser: Parser, text: str) -> None:
    begun = time.process_time()
    try:
        parser(text)
    except (BaiError, ValueError, workload.RowError) as error:
        # A UnicodeError, which is a ValueError, means that the parser did not check the text.
        assert not isinstance(error, UnicodeError), error
        assert len(str(error)) < 2000, "the message repeats the text"
    took = time.process_time() - begun
    assert took < CPU_SECONDS, f"{took:.1f} s of CPU time for {text[:40]!r} ({len(text)})"


def test_every_function_that_takes_text_is_tested_or_excluded() -> None:
    functions = set(discovered())
    unknown = functions - set(PARSERS) - NOT_FROM_USERS
    assert not unknown, (
        f"add to PARSERS, or to NOT_FROM_USERS if users cannot write the text: {unknown}"
    )
    gone = (set(PARSERS) | NOT_FROM_USERS) - functions
    assert not gone, f"no longer exist; remove from PARSERS or NOT_FROM_USERS: {gone}"


CASES = [
    pytest.param(parser, id=f"{name}-{i}")
    for name, parsers in sorted(PARSERS.items())
    for i, parser in enumerate(parsers)
]


@pytest.mark.parametrize("parser", CASES)
def test_hostile_text_is_parsed_or_rejected_in_time(parser: Parser) -> None:
    for text in HOSTILE:
        check(parser, text)


@pytest.mark.parametrize("parser", CASES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=60) | st.text("0123456789.eE+-_ kKmMgGiIbBsh:/,[]@*\0", max_size=60))
def test_random_text_is_parsed_or_rejected(parser: Parser, text: str) -> None:
    check(parser, text)


HUGE = [10**5000, -(10**5000), 1e308, float("inf"), float("nan"), True, None, [], {}, [[]], b"x"]


@pytest.mark.parametrize("value", HUGE, ids=lambda value: type(value).__name__)
def test_json_and_yaml_values_are_parsed_or_rejected(value: Any) -> None:
    for parser in (
        lambda v: resources.parse_amount("mem", v),
        lambda v: resources.ResourceSlots.parse({"cpu": v}),
        lambda v: durations.parse_duration(v, "f"),
        lambda v: group_options.check_options({"pending_timeout": v}),
        lambda v: group_options.check_options({"fair_share": {"default_weight": v}}),
        lambda v: group_options.check_options({"placement": v}),
        lambda v: device_sharing.Sharing.from_facts({"shares": {"least": v}}),
        lambda v: policies.ReplayPolicy.of({"scheduler": v}, "p"),
        *(partial(pipeline_parameters.checked_value, "p", kind) for kind in ParameterType),
        lambda v: history.read_history(v, "f"),
        lambda v: history.read_history(history_with("cluster_size", v), "f"),
        lambda v: history.read_history(history_with("requested", v), "f"),
        lambda v: history.read_history(history_with("started_at", v), "f"),
        user_input.shown,
    ):
        check(parser, value)


def test_swf_rejects_excessive_max_nodes() -> None:
    job = " ".join(["1"] * 18)
    with pytest.raises(BaiError, match="MaxNodes is 999999999999; at most 100000"):
        swf.read_swf(["; MaxNodes: 999999999999", job], "f")


def test_fewest_kernels_is_fast_for_large_primes() -> None:
    begun = time.process_time()
    assert swf.fewest_kernels(67_108_859, 8) == 67_108_859
    assert swf.fewest_kernels(12, 5) == 3
    assert time.process_time() - begun < CPU_SECONDS


def test_error_details_are_valid_json() -> None:
    with pytest.raises(BaiError) as caught:
        resources.parse_amount("cpu", float("nan"))
    assert json.dumps(caught.value.details, allow_nan=False)
