"""What a run found: one result a call, every figure with its reason where there is none; to JSON and to JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the report."""

    name: str
    title: str
    unit: str
    explanation: str
    better: str = "lower"
    digits: int = 0


METRICS: tuple[Metric, ...] = (
    Metric(name="voice_to_voice_ms", title="Voice to voice", unit="ms",
           explanation="from the end of the caller's speech to the first sound of the reply, as both are heard by the "
           "caller: the network's delays count in; median of the plain turns"),
    Metric(name="uplink_wer", title="Words misunderstood", unit="%", digits=1,
           explanation="word error rate of the transcript of the system under test against what was said; what was not "
           "understood before the caller stopped waiting, 12 s after it, counts as wrong"),
    Metric(name="missed_replies", title="Replies that did not come", unit="",
           explanation="how often no sound came within 12 s of the end of the caller's speech"),
    Metric(name="downlink_wer", title="Words lost on the way back", unit="%", digits=1,
           explanation="word error rate of the reply as heard, recognised by one and the same model, against its text; "
           "errors that the model makes in a clean reading of the text too are left out"),
    Metric(name="plcmos", title="Sound of the reply", unit="of 5", better="higher", digits=2,
           explanation="PLCMOS v2 of the reply as heard, a model's guess at what listeners would say; 5 is best"),
    Metric(name="effective_loss_pct", title="Sound made up", unit="%", digits=2,
           explanation="part of the caller's output that no packet, copy or repeat stood behind"),
    Metric(name="delay_ms", title="Buffer delay", unit="ms",
           explanation="time that received speech waited in the caller's playout buffer before it sounded, mean"),
    Metric(name="barge_in_ms", title="Barge-in", unit="ms",
           explanation="from the voice of the interrupting caller to the silence of the reply, as the caller hears it"),
    Metric(name="setup_ms", title="Set-up", unit="ms", explanation="from the offer's sending to a connected call"),
    Metric(name="recovery_ms", title="Back after an outage", unit="ms",
           explanation="from the end of a 2 s outage to the first media packet received again; a target that is "
           "silent then may send one only every 400 ms"),
    Metric(name="after_outage_wer", title="Words misunderstood after it", unit="%", digits=1,
           explanation="word error rate of what was said from 1 s after the outage's end"),
    Metric(name="moved_ms", title="Back after an address change", unit="ms",
           explanation="from the change of the caller's address and port, as a NAT or a change of network makes it, to "
           "the target's first media packet to the new one"),
    Metric(name="rtt_ms", title="Round trip", unit="ms", digits=1,
           explanation="as the caller's own RTCP or ICE measured it"),
)  # fmt: skip


class CallResult(msgspec.Struct, kw_only=True):
    """One call: a target on a profile."""

    target: str
    profile: str
    seed: int
    url: str
    figures: dict[str, float] = {}
    not_measured: dict[str, str] = {}
    """Metric → why there is no figure."""
    failure: str | None = None
    """Why the call itself failed."""
    turns: list[dict[str, Any]] = []
    network: dict[str, Any] = {}
    """The relay's report: what the network really was."""
    timeline: dict[str, Any] = {}
    """For plots: spans of speech, sound heard, events; seconds from the call's start."""
    recording: str | None = None
    """The caller's recording, relative to the report."""
    duration_s: float = 0.0
    load: float = 0.0
    """Programs that ran or waited for a core, the minute before the call's end; 0 where that is not known."""

    def set(self, metric: str, value: float | None, otherwise: str) -> None:
        """Note a figure, or why there is none."""
        if value is None:
            self.not_measured[metric] = otherwise
        else:
            self.figures[metric] = value


class RunResult(msgspec.Struct, kw_only=True):
    """A whole run."""

    title: str
    begun: str
    """ISO 8601, UTC."""
    machine: dict[str, Any]
    targets: dict[str, str]
    profiles: list[dict[str, str]]
    seed: int
    calls: list[CallResult] = []
    receivers: list[dict[str, Any]] = []
    """NetEQ and ours on the same packets, one row a path."""
    remarks: list[str] = []
    duration_s: float = 0.0

    def of(self, target: str, profile: str) -> CallResult | None:
        """The call of this target on this profile."""
        return next((call for call in self.calls if (call.target, call.profile) == (target, profile)), None)


def write_json(result: RunResult, path: Path) -> None:
    """The run as JSON, for machines and for `read_json`."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))


def read_json(path: Path) -> RunResult:
    """A run written before, as for putting two commits side by side."""
    return msgspec.json.decode(path.read_bytes(), type=RunResult)


def write_junit(result: RunResult, path: Path) -> None:
    """The run for CI: a suite a target, a case a profile; a call that failed is a failure, a gap is told."""
    root = ET.Element("testsuites", name=result.title, time=f"{result.duration_s:.1f}")
    for target in result.targets:
        calls = [call for call in result.calls if call.target == target]
        suite = ET.SubElement(
            root, "testsuite", name=target, tests=str(len(calls)), errors="0", skipped="0",
            failures=str(sum(call.failure is not None for call in calls)), timestamp=result.begun,
        )  # fmt: skip
        for call in calls:
            case = ET.SubElement(suite, "testcase", classname=target, name=call.profile, time=f"{call.duration_s:.1f}")
            if call.failure is not None:
                ET.SubElement(case, "failure", message=call.failure)
            lines = [f"{name} = {value:g}" for name, value in call.figures.items()]
            lines += [f"{name}: not measured: {reason}" for name, reason in call.not_measured.items()]
            ET.SubElement(case, "system-out").text = "\n".join(lines)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
