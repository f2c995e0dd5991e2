"""What is measured, side by side with others; run as `python -m bench.NAME [--quick] [--json]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Final

_DEVELOPMENT: Final = frozenset({"hypothesis", "jiwer", "matplotlib", "playwright", "psutil", "pytest", "speechmos"})


class DevelopmentPackages(MetaPathFinder):
    """Asked last of all: names the way to a package that only some benchmarks need and `make run` does not install."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:  # noqa: ARG002
        """Raise ModuleNotFoundError for a package of the development ones; None for what it knows nothing of."""
        if fullname in _DEVELOPMENT:
            raise ModuleNotFoundError(f"{fullname} is not installed: `make install-dev` does that", name=fullname)


sys.meta_path.append(DevelopmentPackages())
