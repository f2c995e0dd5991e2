"""A benchmark without its packages says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import DevelopmentPackages


def test_a_package_that_is_not_there_is_asked_for_by_the_command_that_installs_it() -> None:
    with pytest.raises(ModuleNotFoundError, match="hypothesis is not installed: `make install-dev`"):
        DevelopmentPackages().find_spec("hypothesis", None)
    DevelopmentPackages().find_spec("something_else", None)


def test_a_benchmark_in_an_installation_without_them_names_the_way() -> None:
    hide = "import sys; sys.path = [p for p in sys.path if 'site-packages' not in p]; import bench, hypothesis"
    done = subprocess.run(
        [sys.executable, "-c", hide],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert "`make install-dev`" in done.stderr.splitlines()[-1]
