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
        raise ImpairError("the report's pictures need matplotlib; install it first: python -m pip install matplotlib")


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
    targets = list(result.targets)
    names = [profile["name"] for profile in result.profiles]
    calls = {(call.target, call.profile): call for call in result.calls}
    if not any(metric.name in call.figures for call in result.calls):
        return None
    group_in = _BAR_IN * len(targets) + _GAP_IN
    figure, axes = _figure(4.6, 0.55 + group_in * len(names))
    largest = max(call.figures.get(metric.name, 0.0) for call in result.calls) or 1.0
    height = _BAR_IN / group_in
    for index, target in enumerate(targets):
        for place, name in enumerate(names):
            call = calls.get((target, name))
            at = place + (index - (len(targets) - 1) / 2) * height
            value = call.figures.get(metric.name) if call else None
            axes.barh(at, value or 0.0, height * 0.9, color=COLOURS[index % 4])
            told = "not measured" if value is None else f"{value:.{metric.digits}f}"
            axes.text(
                (value or 0.0) + largest * 0.015, at, told, va="center", fontsize=7,
                color=_GREY if value is None else _INK,
            )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, largest * 1.18)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(metric.unit or "count")
    axes.spines[["top", "right"]].set_visible(False)
    return _svg(figure)


def figure_patch(colour: str) -> Any:
    """A legend's sample of a colour."""
    from matplotlib.patches import Patch  # noqa: PLC0415

    return Patch(color=colour)


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
        axes.axvline(line["moved_at"], color=_LOST, linewidth=1)
        axes.text(line["moved_at"], 2.05, "new address", ha="center", fontsize=7)
    axes.set_yticks([0.5, 1.5], ["reply heard", "caller"])
    axes.set_ylim(0, 2.4)
    axes.set_xlim(0, (line.get("ended") or 1.0) * 1.02)
    axes.set_xlabel("seconds since the call began")
    axes.spines[["top", "right", "left"]].set_visible(False)
    return _svg(figure)


def receivers(rows: Sequence[dict[str, Any]]) -> str:
    """Delay against sound made up, one arrow a path from NetEQ to ours."""
    figure, axes = _figure(6.6, 3.8)
    for row in rows:
        neteq, ours = row.get("neteq"), row.get("ours")
        if not neteq or not ours:
            continue
        axes.annotate(
            "", (ours["delay_ms"], ours["concealed_pct"]), (neteq["delay_ms"], neteq["concealed_pct"]),
            arrowprops={"arrowstyle": "->", "color": _GREY, "lw": 0.8},
        )  # fmt: skip
        axes.plot(neteq["delay_ms"], neteq["concealed_pct"], "s", color=COLOURS[1])
        axes.plot(ours["delay_ms"], ours["concealed_pct"], "o", color=COLOURS[0])
        axes.annotate(row["path"], (ours["delay_ms"], ours["concealed_pct"]), fontsize=7, xytext=(4, 3),
                      textcoords="offset points")  # fmt: skip
    axes.set_xlabel("delay in the buffer, ms")
    axes.set_ylabel("sound made up, %")
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_yticks([0, 0.1, 0.3, 1, 3, 10, 30], ["0", "0.1", "0.3", "1", "3", "10", "30"])
    axes.set_ylim(bottom=0)
    axes.legend([figure_patch(COLOURS[1]), figure_patch(COLOURS[0])], ["NetEQ (Chromium)", "ours"], frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return _svg(figure)
