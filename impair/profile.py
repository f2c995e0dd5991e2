"""What a profile is: stages for each way of a path, and where their figures come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from impair.link import Link, Stage, check_order

Direction = Literal["up", "down"]
MediaWays = Literal["both", "up", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A network by name: `up` is from the caller to the system under test, `down` the way back."""

    name: str
    summary: str
    """What it is, in one line for people."""
    source: str
    """Where the figures come from."""
    up: tuple[Stage, ...] = ()
    down: tuple[Stage, ...] = ()
    base: tuple[Stage, ...] = ()
    """The path of a direction that carries no media to be disturbed."""

    def __post_init__(self) -> None:
        for stages in (self.up, self.down, self.base):
            check_order(stages)

    def stages(self, direction: Direction, *, media: MediaWays = "both") -> tuple[Stage, ...]:
        """The stages of one direction when media to be disturbed goes these ways."""
        if media not in {"both", direction}:
            return self.base
        return self.up if direction == "up" else self.down

    def link(
        self, direction: Direction, *, seed: int | str = 0, media: MediaWays = "both", origin: float | None = None
    ) -> Link:
        """A fresh link of one direction; its chance differs from that of the other direction of the same seed."""
        return Link(self.stages(direction, media=media), seed=f"{seed}/{direction}", origin=origin)


def symmetric(name: str, summary: str, source: str, *stages: Stage, base: tuple[Stage, ...] = ()) -> Profile:
    """The same stages both ways."""
    return Profile(name=name, summary=summary, source=source, up=stages, down=stages, base=base)
