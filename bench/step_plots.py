"""Pictures of how outputs follow a step: one column up, one down; a thin line a call, the median drawn over them."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bench.steps import LEAD_IN_S, OUTPUTS, Followed, Output, Step

mpl.use("Agg")
INK, LINE, THIN = "#1f2933", "#0b6e99", "#9fb8c8"
GRID_S = 0.05


def plot_steps(followed: Followed, folder: Path) -> Path:
    """Write the picture of one kind of step to `folder` and return its path; outputs that never move are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    moving = [output for output in OUTPUTS if _moves(output, followed.steps)]
    figure = Figure(figsize=(9, 0.8 + 1.15 * len(moving)), layout="constrained")
    axes = figure.subplots(len(moving), 2, sharex="col", sharey="row", squeeze=False)
    for row, output in zip(axes, moving, strict=True):
        for axis, upwards in zip(row, (True, False), strict=True):
            _draw(axis, output, [step for step in followed.steps if step.upwards is upwards])
        unit = f", {output.unit}" if output.unit else ""
        row[0].set_title(f"{output.name}{unit}", loc="left", fontsize=9, color=INK)
    for axis, label in zip(axes[-1], ("s after the step up", "s after the step back"), strict=True):
        axis.set_xlabel(label, fontsize=9, color=INK)
    count = len([step for step in followed.steps if step.upwards])
    figure.suptitle(f"{followed.kind.name}: {count} steps each way, median in blue", fontsize=11, color=INK)
    path = folder / f"steps_{followed.kind.file_name}.png"
    figure.savefig(path, dpi=80)
    return path


def _moves(output: Output, steps: list[Step]) -> bool:
    values = [value for step in steps for value in step.values[output.name]]
    return max(values) - min(values) >= output.grain


def _draw(axis: object, output: Output, steps: list[Step]) -> None:
    draw: mpl.axes.Axes = axis  # type: ignore[assignment]
    end_s = min(step.times_s[-1] for step in steps)
    grid = np.arange(-LEAD_IN_S, end_s, GRID_S)
    lines = np.array([_held(step, output.name, grid) for step in steps])
    draw.plot(grid, lines.T, color=THIN, linewidth=0.7)
    draw.plot(grid, np.median(lines, axis=0), color=LINE, linewidth=1.8)
    draw.axvline(0, color=INK, linewidth=0.8, linestyle=":")
    draw.grid(alpha=0.25)
    draw.tick_params(labelsize=8, colors=INK)
    draw.margins(y=0.15)
    for side in ("top", "right"):
        draw.spines[side].set_visible(False)


def _held(step: Step, name: str, grid: np.ndarray) -> np.ndarray:
    """The values at the times of `grid`: each holds until the next."""
    at = np.searchsorted(step.times_s, grid, "right") - 1
    return np.asarray(step.values[name])[np.maximum(at, 0)]
