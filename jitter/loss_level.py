"""How much is lost, for decisions: rises on the first convincing second, falls when ten seconds say so.

A share measured over n packets is only known within a band (Wilson 1927). The level rises to the band's lower edge over
half a second, one, two or five seconds and falls to the mean of ten once their upper edge lies below it. So chance
moves little, a step shows within a second, and nothing goes up and down on one cause.

What two losses mean depends on what was before: after ten seconds without any, two within 0.7 s are a beginning (a
steady loss does so about twice in ten minutes at most, whatever its share), where else three are waited for.
"""

from __future__ import annotations

from collections import deque
from math import sqrt

RISE_WINDOWS_S = (2.0, 5.0)
ONSET_WINDOWS_S = (0.5, 1.0, *RISE_WINDOWS_S)
ONSET_SHARE = 0.03
"""Below this level the short windows count too: a beginning must show at once, a height may take two seconds."""
FALL_WINDOW_S = 10.0
ONSET_RATIO = 2.0
ONSET_KEPT_S = 3.0
"""Where the level has doubled at once, only what came since can say otherwise, once there is so much of it."""
RISE_SIGMAS = 1.64
"""One of twenty steady seconds looks this much worse by chance; three losses in half a second do on a clean path."""
FALL_SIGMAS = 1.0
MIN_LOST = 3
"""Two losses in one window are no trend."""
QUIET_S = 10.0
BEGINNING_S = 0.7
"""Two losses this near to each other after QUIET_S without any are the beginning of more."""


class LossLevel:
    """Holds a share of lost packets (0..1) fed by running totals of what was sent and what of it was lost."""

    __slots__ = ("_onset_at", "_rises", "_totals", "share")

    def __init__(self) -> None:
        self._totals: deque[tuple[float, int, int]] = deque()
        self._rises: deque[float] = deque(maxlen=3)
        """When the last totals came that held more losses."""
        self._onset_at = 0.0
        self.share = 0.0
        """The level to act on."""

    def handle_totals(self, *, sent: int, lost: int, now: float, told_at_once: bool = False) -> float:
        """Take in running totals (they may not fall) and return the level.

        `told_at_once`: `lost` is counted, not estimated, and told as soon as it rises, so that rises are losses apart.
        """
        totals = self._totals
        if totals and (sent < totals[-1][1] or now < totals[-1][0]):
            totals.clear()  # another stream: its counts begin anew
            self._rises.clear()
        if totals and lost > totals[-1][2]:
            self._rises.append(now)
        totals.append((now, sent, lost))
        while len(totals) > 2 and totals[1][0] <= now - FALL_WINDOW_S:
            totals.popleft()
        windows_s = ONSET_WINDOWS_S if self.share < ONSET_SHARE else RISE_WINDOWS_S
        risen = max(self._lower_edge(window_s, now) for window_s in windows_s)
        if told_at_once and self._begins(now):
            risen = max(risen, ONSET_SHARE)
        if risen > self.share:
            if risen > ONSET_RATIO * self.share:
                self._onset_at = now
            self.share = risen
        else:
            self._fall(now)
        return self.share

    def sustained(self, *, now: float) -> float:
        """Return what the last five seconds lost at least: the evidence that costly repair asks for."""
        return self._lower_edge(RISE_WINDOWS_S[-1], now)

    def measured(self, window_s: float, *, now: float) -> float:
        """Return the plain share over the last `window_s` seconds (at most ten)."""
        sent, lost = self._counts(window_s, now)
        return lost / sent if sent else 0.0

    def _begins(self, now: float) -> bool:
        """Whether totals now tell of the second loss after a quiet time."""
        rises = self._rises
        if len(rises) < 2 or rises[-1] != now or now - rises[-2] > BEGINNING_S:
            return False
        quiet_since = rises[0] if len(rises) > 2 else self._totals[0][0]
        return rises[-2] - quiet_since >= QUIET_S - BEGINNING_S

    def _fall(self, now: float) -> None:
        if now - self._totals[0][0] < 0.95 * FALL_WINDOW_S or now - self._onset_at < ONSET_KEPT_S:
            return
        sent, lost = self._counts(min(FALL_WINDOW_S, now - self._onset_at), now)
        if sent and _edge(sent, lost, FALL_SIGMAS) < self.share:
            self.share = lost / sent

    def _lower_edge(self, window_s: float, now: float) -> float:
        sent, lost = self._counts(window_s, now)
        return _edge(sent, lost, -RISE_SIGMAS) if lost >= MIN_LOST else 0.0

    def _counts(self, window_s: float, now: float) -> tuple[int, int]:
        """The totals nearest to the window's beginning, from its far side where there are any."""
        if not self._totals:
            return 0, 0
        first = self._totals[0]
        for entry in self._totals:
            if entry[0] > now - window_s + 1e-6:
                break
            first = entry
        _, sent, lost = self._totals[-1]
        return sent - first[1], max(0, lost - first[2])


def _edge(sent: int, lost: int, sigmas: float) -> float:
    """Return an edge of Wilson's score interval for `lost` of `sent`; negative sigmas give the lower one."""
    if not sent:
        return 0.0
    share = min(1.0, lost / sent)
    square = sigmas * sigmas
    middle = share + square / (2 * sent)
    half = sigmas * sqrt(share * (1 - share) / sent + square / (4 * sent * sent))
    return max(0.0, (middle + half) / (1 + square / sent))
