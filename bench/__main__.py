"""`python -m bench [--quick] [NAME …]`: every benchmark after another, its tables, and bench/results/NAME.json."""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NAMES = ("relay", "jitter", "quality", "repair", "voice", "turns", "outages")
RESULTS = Path(__file__).parent / "results"


def present() -> list[str]:
    """Return the benchmarks that there are, in their order."""
    return [name for name in NAMES if importlib.util.find_spec(f"bench.{name}") is not None]


def run(name: str, *, quick: bool) -> bool:
    """Run one benchmark in a process of its own, print what it prints, and keep its result; False if it failed."""
    print(f"== {name}", flush=True)
    command = [sys.executable, "-m", f"bench.{name}", "--json", *(["--quick"] if quick else [])]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if lines:
                    print(lines[-1], end="", flush=True)
                lines.append(line)
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0 or not lines:
        print(f"{name} failed with status {process.returncode}", file=sys.stderr)
        return False
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = json.loads(lines[-1])
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is named, or everything; returns 1 if any failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer samples: about two minutes each")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(present()))
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(present())
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(present())}")
    done = [run(name, quick=options.quick) for name in options.names or present()]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
