"""Makes .venv-vllm, the environment that vLLM runs in: `python -m tests.engines.vllm_venv`.

Everything in it is pinned by requirements-vllm.lock. A stamp with the lock's hash says that it is whole, so that a
second run does nothing and a changed lock makes it again. It takes 3.5 GB.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-vllm"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements-vllm.lock"
_STAMP = VENV / ".lock-sha256"
_TORCH = "torch=="
_NEEDED_BYTES = 8e9


def make() -> None:
    """Install what the lock names, unless that has been done."""
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if _STAMP.is_file() and _STAMP.read_text() == wanted:
        return
    if shutil.disk_usage(ROOT).free < _NEEDED_BYTES:
        sys.exit(f"vLLM's environment takes 3.5 GB, and as much again while it is installed; free some space in {ROOT}")
    print(f"installing vLLM for CPU into {VENV.name} (3.5 GB, some minutes, once)", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # torch brings what its build needs; a build for CPU where pip is set up to find one.
    torch = next(line for line in LOCK.read_text().splitlines() if line.startswith(_TORCH))
    subprocess.run([*install, torch], check=True)
    subprocess.run([*install, "--no-deps", "-r", str(LOCK)], check=True)
    _STAMP.write_text(wanted)


if __name__ == "__main__":
    try:
        make()
    except subprocess.CalledProcessError as error:
        sys.exit(f"vLLM's environment cannot be made: {error}")
