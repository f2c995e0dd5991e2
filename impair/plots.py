"""The report's pictures, as SVG text that stands inside the page."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from typing import Any

from impair.errors import ImpairError
from impair.results import CallResult, Metric, RunResult

COLOURS = ("#3f7fc4", "#d1702a", "#3a8a4f", "#9a55a8")
"""One a target; each stands out from white and from near black."""
_GREY = "#8a8a8a"
_INK = "#010203"
"""Stands for the page's own colour of text, light or dark, which takes its place in the finished picture."""
_BAR_IN, _GAP_IN = 0.17, 0.14
_LOST = "#d9534f"


def require() -> None:
    """Raise ImpairError where the pictures cannot be drawn: better before a run than after it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImpairError(
            "the report's pictures need matplotlib, of the extra `impair`: python -m pip install matplotlib"
        )


def _figure(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib as mpl  # noqa: PLC0415 - a development package, and a second of importing

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    plt.rcParams.update({"svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif", "svg.hashsalt": "impair"})
    plt.rcParams.update({"text.color": _INK, "axes.edgecolor": _INK, "axes.labelcolor": _INK})
    plt.rcParams.update({"xtick.color": _INK, "ytick.color": _INK})
    return plt.subplots(figsize=(width, height), layout="constrained")


def _svg(figure: Any) -> str:
    from matplotlib import pyplot as plt  # noqa: PLC0415

    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")


def metric_bars(result: RunResult, metric: Metric) -> str | None:
    """A figure's bars, a group a network, a colour a target; None where nothing was measured."""
    names = [profile["name"] for profile in result.profiles]
    calls = {(call.target, call.profile): call.figures.get(metric.name) for call in result.calls}
    rows = [[calls.get((target, name)) for name in names] for target in result.targets]
    if all(value is None for row in rows for value in row):
        return None
    return bars(names, rows, unit=metric.unit or "count", digits=metric.digits)


def bars(names: Sequence[str], rows: Sequence[Sequence[float | None]], *, unit: str, digits: int) -> str:
    """Lying bars: a group a name, a colour a row, each with its value; None is told to be missing."""
    group_in = _BAR_IN * len(rows) + _GAP_IN
    figure, axes = _figure(4.6, 0.55 + group_in * len(names))
    largest = max((value for row in rows for value in row if value is not None), default=0.0) or 1.0
    height = _BAR_IN / group_in
    for index, row in enumerate(rows):
        for place, value in enumerate(row):
            at = place + (index - (len(rows) - 1) / 2) * height
            axes.barh(at, value or 0.0, height * 0.9, color=COLOURS[index % 4])
            told = "not measured" if value is None else f"{value:.{digits}f}"
            axes.text(
                (value or 0.0) + largest * 0.015, at, told, va="center", fontsize=7,
                color=_GREY if value is None else _INK,
            )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, largest * 1.18)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
    return _svg(figure)


def timeline(call: CallResult) -> str | None:
    """Who was heard when: the caller's speech, the reply as it sounded, the outage; None for a call without sound."""
    line = call.timeline
    if not line.get("said"):
        return None
    figure, axes = _figure(9.4, 1.25)
    axes.broken_barh([(a, b - a) for a, b in line["said"]], (1.1, 0.8), color=_GREY)
    axes.broken_barh([(a, b - a) for a, b in line["heard"]], (0.1, 0.8), color=COLOURS[0])
    if line.get("outage"):
        begin, end = line["outage"]
        axes.axvspan(begin, end, color=_LOST, alpha=0.35)
        axes.text((begin + end) / 2, 2.05, "outage", ha="center", fontsize=7)
    if line.get("interruption") is not None:
        axes.text(line["interruption"], 2.05, "interrupts", ha="left", fontsize=7)
    if line.get("moved_at") is not None:
        axes.axvline(line["moved_at"], ymax=0.82, color=_LOST, linewidth=1)
        axes.text(line["moved_at"], 2.05, "new address", ha="center", fontsize=7)
    axes.set_yticks([0.5, 1.5], ["reply heard", "caller"])
    axes.set_ylim(0, 2.4)
    axes.set_xlim(0, (line.get("ended") or 1.0) * 1.02)
    axes.set_xlabel("seconds since the call began")
    axes.spines[["top", "right", "left"]].set_visible(False)
    return _svg(figure)


def receivers(rows: Sequence[dict[str, Any]], figure: str, *, unit: str, digits: int) -> str:
    """One figure of every receiver on every path, NetEQ's first."""
    values = [[(row.get(who) or {}).get(figure) for row in rows] for who in ("neteq", "ours", "ours_with_repair")]
    return bars([str(row["path"]) for row in rows], values, unit=unit, digits=digits)
