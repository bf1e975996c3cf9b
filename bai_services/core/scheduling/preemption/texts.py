"""Texts for the owners of preempted sessions; they name no other session."""

from __future__ import annotations

from ...coded_text import CodedText, TextTemplate
from .rules import Rule

_TEMPLATES = {
    Rule.PRIORITY: TextTemplate.PREEMPTED_BY_PRIORITY,
    Rule.JOB_PRIORITY: TextTemplate.PREEMPTED_BY_JOB_PRIORITY,
    Rule.FAIR_SHARE: TextTemplate.PREEMPTED_BY_FAIR_SHARE,
}


def preemption_text(rule: Rule, group: str, priority: int) -> CodedText:
    """Return why a session is preempted; ``priority`` is the priority of the preempted session."""
    template = _TEMPLATES[rule]
    if rule is Rule.PRIORITY:
        return template.text(group=group, priority=priority)
    return template.text(group=group)
