"""The report: one HTML file that explains itself, its pictures inside, and a PDF of it."""

from __future__ import annotations

import html
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from impair import plots
from impair.errors import ImpairError
from impair.results import METRICS, CallResult, Metric, RunResult

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PDF_TIMEOUT_S = 90.0
_FELT = {"voice_to_voice_ms", "uplink_wer", "effective_loss_pct", "plcmos"}

_RECEIVERS = {"neteq": "NetEQ", "ours": "Our playout buffer", "ours_with_repair": "Our playout buffer with repair"}
_RECEIVED = (("Delay in the buffer", "delay_ms", "ms", 0), ("Sound made up", "concealed_pct", "%", 2))
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --quiet: #555; --paper: #fff; --line: #ddd; --head: #888;
        --band: #f2f4f7; --bad: #a02622; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --quiet: #a9adb3; --paper: #16181c; --line: #34383f;
        --head: #7d828a; --band: #22262c; --bad: #ff8a80; } }
@media print { :root { color-scheme: light; --ink: #000; --quiet: #444; --paper: #fff; --line: #ddd; --head: #888;
        --band: #f2f4f7; --bad: #a02622; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
       margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.25rem; margin-top: 2.4rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
p.lead { font-size: 1.05rem; } .quiet { color: var(--quiet); } small { font-size: .85em; }
table { border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .55rem; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; } td.n { white-space: nowrap; } thead th { border-bottom: 2px solid var(--head); }
tr.group th { background: var(--band); } td.best { font-weight: 650; } td.none { color: var(--quiet); }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1.2rem 2rem; }
figure { margin: 0; } figcaption { font-size: .88rem; color: var(--quiet); } figcaption b { color: var(--ink); }
svg { max-width: 100%; height: auto; } .failed { color: var(--bad); font-weight: 600; }
.key { margin-right: 1.4rem; } .key span { display: inline-block; width: 1.1em; height: .8em; margin-right: .4em; }
.wide { overflow-x: auto; } details { margin: .4rem 0; } summary { cursor: pointer; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } h2 { break-after: avoid; }
  figure, tr, svg { break-inside: avoid; } audio { display: none; } }
"""


def render(result: RunResult) -> str:
    """The run as one HTML page without references to anything but its recordings."""
    parts = [
        f"<h1>{_text(result.title)}</h1>",
        _lead(result),
        _in_short(result) if result.calls else "",
        _glance(result) if result.calls else "",
        _tables(result) if result.calls else "",
        _receivers(result.receivers),
        _gaps(result),
        _networks(result),
        _calls(result) if result.calls else "",
        _method(result) if result.calls else "",
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{_text(result.title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _lead(result: RunResult) -> str:
    names = " and ".join(f"<b>{_text(name)}</b>" for name in result.targets) or "two jitter buffers"
    calls = len(result.calls)
    told = ("One real call was" if calls == 1 else f"{calls} real calls were") if calls else "Real speech was"
    done = "made" if calls else "sent"
    failed = [call for call in result.calls if call.failure]
    trouble = f' <span class="failed">{len(failed)} of them failed.</span>' if failed else ""
    verb = "does" if len(result.targets) == 1 else "do"
    return (
        f'<p class="lead">How {verb} {names} do when the network is bad? {told} {done} through networks that are the '
        f"same for all: what is lost and what comes late follows from a seed ({result.seed}).{trouble}</p>"
        f'<p class="quiet">{_text(result.begun)} · {result.duration_s / 60:.1f} minutes · '
        f"{_text(', '.join(f'{key} {value}' for key, value in result.machine.items()))}</p>"
        + "".join(f"<p>{_text(remark)}</p>" for remark in result.remarks)
    )


def _in_short(result: RunResult) -> str:
    """A row for each figure that people feel: each target's best and worst network."""
    targets = list(result.targets)
    rows = []
    for metric in METRICS:
        if metric.name not in _FELT:
            continue
        cells = "".join(f'<td class="n">{_span(result, target, metric)}</td>' for target in targets)
        told = f'{_text(metric.title)}<br><small class="quiet">{_text(metric.better)} is better</small>'
        rows.append(f"<tr><td>{told}</td>{cells}</tr>")
    head = "".join(f'<th class="n">{_text(target)}</th>' for target in targets)
    return (
        "<h2>In short</h2><table><thead><tr><th>on the best and on the worst network</th>"
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _span(result: RunResult, target: str, metric: Metric) -> str:
    known = [
        (call.figures[metric.name], call.profile)
        for call in result.calls
        if call.target == target and metric.name in call.figures
    ]
    if not known:
        return "not measured"
    ends = sorted(known, key=lambda one: one[0], reverse=metric.better == "higher")
    (best, easy), (worst, hard) = ends[0], ends[-1]
    if best == worst:
        where = easy if len(known) == 1 else "all alike"
        return f'{_number(best, metric)}<br><small class="quiet">{_text(where)}</small>'
    between = f"{best:.{metric.digits}f} … {_number(worst, metric)}"
    return f'{between}<br><small class="quiet">{_text(easy)} … {_text(hard)}</small>'


def _number(value: float, metric: Metric) -> str:
    return f"{value:.{metric.digits}f} {_text(metric.unit)}".rstrip()


def _glance(result: RunResult) -> str:
    figures = []
    for metric in METRICS:
        if not metric.unit and not any(call.figures.get(metric.name) for call in result.calls):
            continue  # nothing to count
        picture = plots.metric_bars(result, metric)
        if picture is not None:
            figures.append(
                f"<figure><figcaption><b>{_text(metric.title)}</b> ({_text(metric.unit or 'count')}, {metric.better} "
                f"is better): {_text(metric.explanation)}.</figcaption>{picture}</figure>"
            )
    legend = _legend(result.targets)
    return f'<h2>At a glance</h2><p>{legend}</p><div class="pictures">{"".join(figures)}</div>'


def _legend(names: Iterable[str]) -> str:
    return "".join(
        f'<span class="key"><span style="background:{plots.COLOURS[index % 4]}"></span>{_text(name)}</span>'
        for index, name in enumerate(names)
    )


def _tables(result: RunResult) -> str:
    targets = list(result.targets)
    head = "".join(f'<th class="n">{_text(target)}</th>' for target in targets)
    rows = []
    for profile in result.profiles:
        name = profile["name"]
        rows.append(
            f'<tr class="group"><th colspan="{len(targets) + 1}">{_text(name)} '
            f'<span class="quiet">— {_text(profile["summary"])}</span></th></tr>'
        )
        calls = [result.of(target, name) for target in targets]
        rows += [_row(metric, calls) for metric in METRICS]
    return (
        "<h2>Every figure</h2><p>The better figure of a row is bold where they differ by more than a tenth. A dash "
        "means that it could not be measured; the reasons stand below.</p>"
        f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _row(metric: Metric, calls: Sequence[CallResult | None]) -> str:
    values = [None if call is None else call.figures.get(metric.name) for call in calls]
    known = [value for value in values if value is not None]
    best = None
    if len(known) > 1:
        best = min(known) if metric.better == "lower" else max(known)
        others = [value for value in known if value != best]
        if not others or all(abs(value - best) <= 0.1 * max(abs(value), abs(best)) for value in others):
            best = None
    cells = "".join(
        '<td class="n none">—</td>'
        if value is None
        else f'<td class="n{" best" if value == best else ""}">{_number(value, metric)}</td>'
        for value in values
    )
    return f'<tr><td title="{_text(metric.explanation)}">{_text(metric.title)}</td>{cells}</tr>'


def _receivers(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    body = []
    for row in rows:
        cells = [f"<td>{_text(row['path'])}</td>"]
        for who in ("neteq", "ours", "ours_with_repair"):
            figures = row.get(who)
            if figures is None:
                cells.append(f'<td class="n none" colspan="2">{_text(row.get(f"{who}_missing", "not measured"))}</td>')
            else:
                cells.append(
                    f'<td class="n">{figures["delay_ms"]:.0f}</td><td class="n">{figures["concealed_pct"]:.2f}</td>'
                )
        overhead = (row.get("ours_with_repair") or {}).get("overhead_pct")
        cells.append(f'<td class="n">{"—" if overhead is None else f"{overhead:.0f}"}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    legend = _legend(_RECEIVERS.values())
    pictures = "".join(
        f"<figure><figcaption><b>{title}</b> ({unit}, lower is better)</figcaption>"
        f"{plots.receivers(rows, figure, unit=unit, digits=digits)}</figure>"
        for title, figure, unit, digits in _RECEIVED
    )
    return (
        "<h2>The jitter buffers on the same packets</h2><p>Chromium's NetEQ played real speech that came through the "
        "relay; our playout reader was then given the very packets of that call, at the very times. Delay is what the "
        "buffer adds (W3C's jitterBufferDelay / jitterBufferEmittedCount), made-up sound is what no packet stood "
        "behind. The last pair is ours with the repair it would have asked for (FEC, copies, retransmission), which "
        "NetEQ had no part in. The sender's own pacing counts as the network's, for both alike; 99 % were late by less "
        f"than {max((row.get('pacing_p99_ms', 0.0) for row in rows), default=0.0):.0f} ms.</p>"
        f'<p>{legend}</p><div class="pictures">{pictures}</div>'
        "<table><thead><tr><th>network</th>"
        '<th class="n">NetEQ delay, ms</th><th class="n">made up, %</th>'
        '<th class="n">ours delay, ms</th><th class="n">made up, %</th>'
        '<th class="n">ours + repair, ms</th><th class="n">made up, %</th><th class="n">extra bits, %</th></tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def _gaps(result: RunResult) -> str:
    titles = {metric.name: metric.title for metric in METRICS}
    reasons: dict[tuple[str, str], list[str]] = {}
    for call in result.calls:
        for name, reason in call.not_measured.items():
            reasons.setdefault((titles[name], reason), []).append(f"{call.target} on {call.profile}")
    for row in result.receivers:
        for who in ("neteq", "ours", "ours_with_repair"):
            if row.get(who) is None:
                reasons.setdefault((_RECEIVERS[who], str(row.get(f"{who}_missing", "not run"))), []).append(
                    str(row["path"])
                )
    if not result.receivers:
        reasons["NetEQ and our playout buffer on the same packets", "not asked for (--receivers all)"] = [
            "every network"
        ]
    items = "".join(
        f"<li><b>{_text(title)}</b>, {_text(', '.join(places))}: {_text(reason)}</li>"
        for (title, reason), places in reasons.items()
    )
    return f"<h2>What could not be measured</h2>{f'<ul>{items}</ul>' if items else '<p>Nothing.</p>'}"


def _networks(result: RunResult) -> str:
    known = {p["name"]: p for p in result.profiles}
    for row in result.receivers:
        if "summary" in row:
            known.setdefault(row["path"], {"name": row["path"], "summary": row["summary"], "source": row["source"]})
    rows = "".join(
        f"<tr><td><b>{_text(p['name'])}</b></td><td>{_text(p['summary'])}</td><td>{_text(p['source'])}</td></tr>"
        for p in known.values()
    )
    return (
        "<h2>The networks</h2><table><thead><tr><th>name</th><th>what it is</th><th>where its figures come from</th>"
        f"</tr></thead><tbody>{rows}</tbody></table>"
    )


def _calls(result: RunResult) -> str:
    return "<h2>Call by call</h2>" + "".join(_call(call) for call in result.calls)


def _call(call: CallResult) -> str:
    parts = [f"<h3>{_text(call.target)} on {_text(call.profile)}</h3>"]
    if call.failure:
        parts.append(f'<p class="failed">The call failed: {_text(call.failure)}</p>')
    picture = plots.timeline(call)
    if picture:
        parts.append(f"<figure>{picture}</figure>")
    if call.recording:
        parts.append(f'<audio controls preload="none" src="{_text(call.recording)}"></audio>')
    if call.turns:
        rows = "".join(_turn(turn) for turn in call.turns)
        parts.append(
            "<details open><summary>what was said</summary><table><thead><tr><th></th><th>said</th><th>understood</th>"
            '<th class="n">answer after, ms</th><th>reply, by its text</th><th>reply, as recognised</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></details>"
        )
    parts.append(f'<p class="quiet">{_text(_network_told(call.network))}</p>')
    return "".join(parts)


def _turn(turn: dict[str, Any]) -> str:
    keys = ("understood", "voice_to_voice_ms", "replied", "heard")
    understood, waited, replied, heard = ("—" if turn.get(key) is None else turn[key] for key in keys)
    return (
        f"<tr><td>{_text(turn['role'])}</td><td>{_text(turn['said'])}</td><td>{_text(understood)}</td>"
        f'<td class="n">{_text(waited)}</td><td>{_text(replied)}</td><td>{_text(heard)}</td></tr>'
    )


def _network_told(network: dict[str, Any]) -> str:
    """What the relay says it did, in a sentence."""
    flows = [flow for flow in network.get("flows", []) if flow["carries_media"]]
    if not flows:
        return "The relay carried no media."
    told = []
    for way, words in (("up", "to the target"), ("down", "to the caller")):
        packets = sum(flow[way]["packets"] for flow in flows)
        lost = sum(flow[way]["lost"] for flow in flows)
        delay = sum(flow[way]["delay_sum_ms"] for flow in flows) / max(1, packets - lost)
        share = 100 * lost / max(1, packets)
        told.append(f"{words} {packets} packets, {share:.1f} % lost, {delay:.0f} ms mean delay")
    relay = network["relay"]
    late = relay.get("late_p99_ms")
    own = f"; its own error was below {late:.2f} ms for 99 % of them" if late is not None else ""
    dropped = relay["kernel_dropped"] + relay["overflow_lost"]
    unwanted = f"; {dropped} packets were lost that it should not have lost" if dropped else ""
    return f"What the relay did: {'; '.join(told)}; {relay['outage_lost']} more lost in the outage{own}{unwanted}."


def _method(result: RunResult) -> str:
    items = "".join(
        f"<li><b>{_text(m.title)}</b> ({_text(m.unit or 'count')}): {_text(m.explanation)}.</li>" for m in METRICS
    )
    targets = "".join(f"<li><b>{_text(name)}</b>: {_text(what)}</li>" for name, what in result.targets.items())
    return (
        "<h2>How it was measured</h2><p>A caller of our own makes a real WebRTC call to each target through a UDP "
        "relay that delays and loses packets by the network's model. The caller speaks recordings, waits for replies, "
        "interrupts one, then everything is lost for two seconds, and one second later the caller speaks again; while "
        "that is being answered, the caller's address changes. What ears heard is worked out from the packets by one "
        "and the same playout buffer, so that only the target differs; where the target is a page, Chromium is the "
        "caller and its NetEQ the ears."
        f"</p><h3>Targets</h3><ul>{targets}</ul><h3>Figures</h3><ul>{items}</ul>"
    )


def write_html(result: RunResult, path: Path) -> None:
    """Write the page."""
    path.write_text(render(result), encoding="utf-8")


def find_browser(names: Iterable[str] = _BROWSERS) -> str:
    """The path of a Chromium; ImpairError where there is none."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise ImpairError("no Chromium was found on this machine, which prints the PDF")


def write_pdf(page: Path, path: Path) -> None:
    """Print the page with a headless Chromium; ImpairError where that cannot be done."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
            f"--user-data-dir={profile}", f"--print-to-pdf={path.resolve()}", page.resolve().as_uri(),
        ]  # fmt: skip
        try:
            subprocess.run(command, check=False, capture_output=True, timeout=_PDF_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ImpairError(f"Chromium printed no PDF within {_PDF_TIMEOUT_S:g} s") from None
    if not path.is_file():
        raise ImpairError("Chromium printed no PDF")
