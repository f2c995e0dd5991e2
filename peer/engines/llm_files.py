"""Where converted language models stand in the cache; makes them when they are not there yet. Imports nothing heavy."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from peer.errors import ModelError
from peer.model_manifest import MODELS
from peer.models import ModelStore

_RECIPE = 1
"""Part of the folder's name; raised when a conversion would come out otherwise."""
_ROOT = Path(__file__).resolve().parents[2]

Report = Callable[[float | None, str], None]


def find_gguf(store: ModelStore, name: str, report: Report) -> Path:
    """Return the GGUF file of a model in the store, fetched if need be, or of a path; raises ModelError."""
    if name.endswith(".gguf"):
        if not Path(name).is_file():
            raise ModelError(f"there is no file {name}")
        return Path(name)
    if name not in MODELS or not any(member.name.endswith(".gguf") for member in MODELS[name].members):
        known = [model.name for model in MODELS.values() if any(m.name.endswith(".gguf") for m in model.members)]
        raise ModelError(f"--llm ct2:{name}: no such model; there are: {', '.join(known)}, or the path of a .gguf file")
    folder = store.ensure(name, on_progress=lambda done, total, text: report(done / total, text))
    return next(folder.glob("*.gguf"))


def ensure_converted(store: ModelStore, name: str, form: str, report: Report, *, python: str = sys.executable) -> Path:
    """Return the folder of a model in `form` (int8, float32 or hf), converted once; raises ModelError.

    `python` is the interpreter that has CTranslate2, where that is not this one.
    """
    source = find_gguf(store, name, report)
    folder = store.cache_dir / "converted" / f"{source.stem}-{source.stat().st_size}-{form}-{_RECIPE}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not folder.is_dir():
            report(None, f"converting {source.name} once")
            command = [python, "-m", "peer.engines.llm_convert", str(source), str(folder), form]
            ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise ModelError(f"{source.name} cannot be converted: {ran.stderr.strip().splitlines()[-1]}")
    return folder
