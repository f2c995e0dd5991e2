"""The plugin in a pytest of its own: the mark is obeyed, the network steered, the report kept, a wrong mark refused."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]

INNER = """
import socket
import pytest

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


def test_marks_and_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(INNER)
    junit = tmp_path / "junit.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "impair.pytest_plugin", "-p", "no:cacheprovider",
         "--strict-markers",
         "--rootdir", str(tmp_path), "-c", "/dev/null", f"--junitxml={junit}", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert "2 errors" in done.stdout, done.stdout
    assert "did you mean lte" in done.stdout
    assert "write @pytest.mark.network(profile" in done.stdout
    cases = {case.get("name"): case for case in ET.parse(junit).iter("testcase")}
    told = cases["test_marked"].find(".//property")
    assert told is not None
    assert "loss20_jitter40" in (told.get("value") or "")
