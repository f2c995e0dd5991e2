"""A million random packets through both readers: `python -m bench.fuzz [--packets N] [--seed N]`.

The checks are those of tests/unit/test_jitter_properties.py; a seed that fails is printed and can be run again.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from random import Random

from tests.unit.jitter_chaos import as_packets, listen_through, play_through, random_steps
from tests.unit.test_jitter_properties import check_listened, check_played, listener, player

CHUNK = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzz; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args(arguments)
    first = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    chunks = -(-options.packets // CHUNK)
    for seed in range(first, first + chunks):
        packets = as_packets(random_steps(Random(seed), CHUNK))
        try:
            heard, played = listener(), player()
            check_listened(heard, listen_through(heard, packets))
            check_played(played, play_through(played, packets), 160)
        except Exception:
            print(f"seed {seed} fails: python -m bench.fuzz --packets {CHUNK} --seed {seed}", file=sys.stderr)
            raise
    print(
        f"{chunks * CHUNK} packets, seeds {first} to {first + chunks - 1}: nothing raised, every sample accounted for"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
