"""Plots of replays: waiting times, slowdowns, utilization, queue length and fragmentation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bai_services.core.scheduling.replay.measures import slowdown, use_over_time
from bai_services.core.scheduling.replay.simulate import Replay

HOUR = 3600


def write(replays: Mapping[str, Replay], folder: Path) -> list[Path]:
    """Write the plots as SVG files, and return their paths; each plot shows all policies."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "waits": _waits(replays),
        "slowdowns": _slowdowns(replays),
        "utilization": _utilization(replays),
        "queue": _queue(replays),
    }
    written = []
    for name, figure in figures.items():
        path = folder / f"{name}.svg"
        # Omit the date of creation, so that equal replays produce identical files.
        figure.savefig(path, metadata={"Date": None})
        written.append(path)
    return written


def _figure(title: str, xlabel: str, ylabel: str, rows: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(8, 3.5 * rows), layout="constrained")
    axes = [figure.add_subplot(rows, 1, row + 1) for row in range(rows)]
    axes[0].set_title(title)
    axes[-1].set_xlabel(xlabel)
    for one in axes:
        one.set_ylabel(ylabel)
        one.grid(alpha=0.3)
    return figure, axes


def _waits(replays: Mapping[str, Replay]) -> Figure:
    figure, (axes,) = _figure("Waiting time", "hours", "sessions, %")
    for name, replayed in replays.items():
        waits = [o.waited / HOUR for o in replayed.outcomes if o.waited is not None]
        _cumulative(axes, waits, name)
    axes.legend()
    return figure


def _slowdowns(replays: Mapping[str, Replay]) -> Figure:
    figure, (axes,) = _figure("Bounded slowdown", "slowdown factor", "sessions, %")
    for name, replayed in replays.items():
        _cumulative(axes, [slowdown(o) for o in replayed.outcomes if o.started is not None], name)
    axes.set_xscale("log")
    axes.legend()
    return figure


def _cumulative(axes: Axes, values: list[float], name: str) -> None:
    if values:
        percentages = 100 * np.arange(1, len(values) + 1) / len(values)
        axes.step(np.sort(values), percentages, where="post", label=name)


def _utilization(replays: Mapping[str, Replay]) -> Figure:
    used = {name: use_over_time(replayed) for name, replayed in replays.items()}
    resources = sorted({resource for series in used.values() for resource in series})
    rows = max(1, len(resources))
    figure, all_axes = _figure("Utilization", "hours", "%", rows)
    for resource, axes in zip(resources, all_axes, strict=False):
        axes.set_ylabel(f"{resource}, %")
        for name, series in used.items():
            times, percents = series.get(resource, ([], []))
            axes.step(np.array(times) / HOUR, percents, where="post", label=name)
        axes.legend()
    return figure


def _queue(replays: Mapping[str, Replay]) -> Figure:
    figure, (above, below) = _figure("Queue and fragmentation", "hours", "", 2)
    above.set_ylabel("pending sessions")
    below.set_ylabel("fragmentation, %")
    for name, replayed in replays.items():
        hours = [sample.seconds / HOUR for sample in replayed.samples]
        above.step(hours, [s.pending for s in replayed.samples], where="post", label=name)
        fragments = [100 * s.fragmentation for s in replayed.samples]
        below.step(hours, fragments, where="post", label=name)
    above.legend()
    below.legend()
    return figure
