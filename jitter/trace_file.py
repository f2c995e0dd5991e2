"""Arrival traces as CSV: read, and refused with the line where they make no sense. Pure but for the reading."""

from __future__ import annotations

import csv
from math import isfinite
from pathlib import Path

from jitter.packet import SEQUENCE_BITS, Unwrapper
from jitter.simulation import TracePacket

MAX_PTIME_MS = 120
"""The longest Opus packet (RFC 6716 §3.2.5)."""
MAX_BYTES = 65_507
"""The longest UDP payload over IPv4."""
MAX_GAP_MS = 3_600_000.0
"""An hour: longer pauses and delays are another unit, or another clock."""


class TraceError(ValueError):
    """A trace that cannot be used; the message says where and why."""


def read_trace(path: Path) -> list[TracePacket]:
    """Return the packets of a CSV trace in sending order; raises TraceError, or OSError where it cannot be read."""
    packets: list[TracePacket] = []
    sequences = Unwrapper(SEQUENCE_BITS)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        try:
            missing = {"seq", "sent_ms", "arrival_ms"} - set(rows.fieldnames or ())
            if missing:
                raise TraceError(f"{path}: no column {', '.join(sorted(missing))}")
            for row in rows:
                packets.append(_packet(row, sequences))
                if len(packets) > 1:
                    _check_order(packets[-2], packets[-1])
        except TraceError as error:
            raise (
                error if not packets and rows.line_num < 2 else TraceError(f"{path}:{rows.line_num}: {error}")
            ) from None
        except UnicodeDecodeError:
            raise TraceError(f"{path}: no CSV text") from None
        except (csv.Error, TypeError, ValueError) as error:
            raise TraceError(f"{path}:{rows.line_num}: {error}") from None
    arrived = [packet for packet in packets if packet.arrival_ms is not None]
    if not arrived:
        raise TraceError(f"{path}: no packet arrived")
    _check_delays(path, arrived)
    return packets


def _packet(row: dict[str, str], sequences: Unwrapper) -> TracePacket:
    arrival = row["arrival_ms"]
    if arrival is None:  # type: ignore[redundant-expr, unused-ignore]
        raise TraceError("too few columns")
    sequence = int(row["seq"])
    if 0 <= sequence < 1 << SEQUENCE_BITS:  # as on the wire, where it wraps
        sequence = sequences.unwrap(sequence)
    return TracePacket(
        sequence=sequence,
        sent_ms=_finite("sent_ms", row["sent_ms"]),
        arrival_ms=_finite("arrival_ms", arrival) if arrival.strip() else None,
        size_bytes=_within("bytes", row.get("bytes") or "60", MAX_BYTES),
        ptime_ms=_within("ptime_ms", row.get("ptime_ms") or "20", MAX_PTIME_MS),
    )


def _finite(name: str, text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise TraceError(f"{name} is {text}")
    return value


def _within(name: str, text: str, most: int) -> int:
    value = int(text)
    if not 1 <= value <= most:
        raise TraceError(f"{name} is {value}, not 1 to {most}")
    return value


def _check_order(before: TracePacket, packet: TracePacket) -> None:
    if packet.sequence <= before.sequence or packet.sent_ms < before.sent_ms:
        raise TraceError("not in sending order")
    if packet.sent_ms - before.sent_ms > MAX_GAP_MS:
        raise TraceError("sent more than an hour after the packet before")


def _check_delays(path: Path, arrived: list[TracePacket]) -> None:
    """Clocks of both ends may differ by anything, but one packet's way is not an hour longer than another's."""
    delays = [packet.arrival_ms - packet.sent_ms for packet in arrived if packet.arrival_ms is not None]
    if max(delays) - min(delays) > MAX_GAP_MS:
        raise TraceError(f"{path}: one packet takes more than an hour longer than another")
