"""Samples of an endpoint's load that the manager keeps in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

from .autoscaling import SAMPLE_SECONDS, LoadSample, ScalingRule

# Maximum time between samples that are merged.
MERGE_WITHIN_SECONDS = 0.5
# Age up to which all samples are kept. Older samples matter only for the idle period, so at most
# two per minute are kept.
FULL_RESOLUTION_SECONDS = 600
_MINUTE = 60


class LoadHistory:
    """Recent samples of the load of an endpoint.

    At its start and after a gap, the history assumes that ``wanted`` replicas had their target load
    for the whole stable window. A manager that takes over therefore does not scale immediately.
    """

    def __init__(self) -> None:
        self._samples: list[LoadSample] = []

    @property
    def samples(self) -> Sequence[LoadSample]:
        return self._samples

    def add(self, rule: ScalingRule, now: float, load: float, wanted: int) -> None:
        """Add the load at ``now``, and drop samples that the rule no longer needs."""
        last = self._samples[-1] if self._samples else None
        if last is None or not last.at <= now <= last.at + SAMPLE_SECONDS:
            start = LoadSample(now - rule.stable_seconds, wanted * rule.load_per_replica)
            self._samples = [start, LoadSample(now, load)]
            return
        if now - last.at < MERGE_WITHIN_SECONDS:
            self._samples[-1] = LoadSample(last.at, max(last.load, load))
        elif load == last.load and len(self._samples) > 1 and self._samples[-2].load == load:
            # Of consecutive equal samples, only the first and the last are kept.
            self._samples[-1] = LoadSample(now, load)
        else:
            self._samples.append(LoadSample(now, load))
        self._drop_before(now - rule.window_seconds)
        self._thin(now - max(FULL_RESOLUTION_SECONDS, rule.stable_seconds))

    def begin_idle_period(self, start: float) -> None:
        """Drop the load before ``start``, so that the idle period begins there at the earliest."""
        self._drop_before(start)
        if self._samples and self._samples[0].at < start:
            self._samples[0] = LoadSample(start, self._samples[0].load)

    def _drop_before(self, start: float) -> None:
        """Drop samples before ``start`` except the latest: its value still applies at ``start``."""
        dropped = sum(1 for _, following in pairwise(self._samples) if following.at <= start)
        del self._samples[:dropped]

    def _thin(self, before: float) -> None:
        old = [sample for sample in self._samples if sample.at < before]
        if len(old) > 1:
            self._samples[: len(old)] = _per_minute(old)


def _per_minute(samples: Iterable[LoadSample]) -> list[LoadSample]:
    """Return at most two samples per minute: one with the time of the first sample and the
    maximum load of the minute, and the last sample, whose value may apply for a long time.
    """
    kept: list[LoadSample] = []
    for _, group in groupby(samples, key=lambda sample: sample.at // _MINUTE):
        found = list(group)
        kept.append(LoadSample(found[0].at, max(sample.load for sample in found)))
        if len(found) > 1:
            kept.append(found[-1])
    return kept
