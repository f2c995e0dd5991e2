"""The plugin, installed, in a pytest of its own that knows nothing else of this project.

The mark is obeyed, the network steered, the report kept, a wrong mark refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]

INNER = """
import pathlib
import socket
import pytest

def test_it_is_the_installed_package():
    import impair
    assert pathlib.Path(impair.__file__).parts[-3] == "site"

def send(network, count):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target, \\
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        target.bind(("127.0.0.1", 0))
        target.settimeout(3)
        via = network.relay("127.0.0.1:%d" % target.getsockname()[1])
        for n in range(count):
            client.sendto(b"%d" % n, via)
        client.sendto(b"end", via)
        got = []
        while True:
            network_stats = network.report()[-1]
            if network_stats["flows"] and network_stats["flows"][0]["up"]["packets"] == count + 1:
                return network_stats, target

@pytest.mark.network("loss20_jitter40", seed=4)
def test_marked(network):
    stats, _ = send(network, 200)
    assert 10 < stats["flows"][0]["up"]["lost"] < 80
    assert (stats["profile"], stats["seed"]) == ("loss20_jitter40", 4)

def test_unmarked_has_no_impairment(network):
    stats, _ = send(network, 50)
    assert stats["flows"][0]["up"]["lost"] == 0

@pytest.mark.network("none")
def test_steered(network):
    send(network, 1)
    network.change("lte", seed=9)
    network.outage(0.5)
    network.rebind()
    assert network.report()[0]["profile"] == "lte"
    assert network.proxy("http://127.0.0.1:9/x").endswith("/x")

@pytest.mark.network("lt")
def test_wrong_name(network):
    pass

@pytest.mark.network("lte", speed=3)
def test_wrong_mark(network):
    pass
"""


def installed(site: Path) -> Path:
    """The packages and entry points that pyproject.toml declares, laid out as an installer does; where they lie."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]:
        name = pattern.rstrip("*")
        shutil.copytree(ROOT / name, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    information = site / "antiphon-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: antiphon\nVersion: 0\n")
    lines = []
    for group, entries in project["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (information / "entry_points.txt").write_text("\n".join(lines))
    return site


def test_marks_and_fixture(tmp_path: Path) -> None:
    site = installed(tmp_path / "site")
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_inner.py").write_text(INNER)
    junit = tmp_path / "junit.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers",
         "--rootdir", str(project), "-c", "/dev/null", f"--junitxml={junit}", str(project)],
        cwd=project, env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=150,
        check=False,
    )  # fmt: skip
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert "2 errors" in done.stdout, done.stdout
    assert "did you mean lte" in done.stdout
    assert "write @pytest.mark.network(profile" in done.stdout
    cases = {case.get("name"): case for case in ET.parse(junit).iter("testcase")}
    told = cases["test_marked"].find(".//property")
    assert told is not None
    assert "loss20_jitter40" in (told.get("value") or "")
