"""The HTTP API over a real socket: what it answers, what it refuses, and that a refusal harms no later call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from peer.calls import Calls
from peer.endpointing import Endpointer
from peer.engines.factory import EngineSet
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts
from peer.http_api import ApiOptions, HttpApi
from peer.session import CallSession, SessionOptions
from tests.sim.line import LevelVad, Line
from transport.errors import NoAddressError, RemoteProtocolError

_SDP = {"Content-Type": "application/sdp"}
Client = TestClient[web.Request, web.Application]


class _PickyLine(Line):
    async def answer(self, offer_sdp: str) -> str:
        if "broken" in offer_sdp:
            raise ZeroDivisionError("a fault of ours")
        if "no port" in offer_sdp:
            raise NoAddressError("no UDP port for media is free")
        if "audio" not in offer_sdp:
            raise RemoteProtocolError("no_audio", "the offer has no audio section")
        return await super().answer(offer_sdp)

    async def add_candidate(self, candidate: str | None, sdp_mid: str | None, sdp_m_line_index: int | None) -> None:
        if candidate is not None and not candidate.startswith("candidate:"):
            raise RemoteProtocolError("bad_candidate", "that is no candidate")
        self.candidates.append((candidate, sdp_mid, sdp_m_line_index))

    def __init__(self) -> None:
        super().__init__()
        self.candidates: list[tuple[str | None, str | None, int | None]] = []


class _Server:
    def __init__(self, *, max_calls: int = 4, **options: object) -> None:
        self.lines: list[_PickyLine] = []
        self.reason: str | None = None
        self.calls = Calls(make_session=self._make_session, max_calls=max_calls)
        self.api = HttpApi(
            calls=self.calls,
            not_ready_reason=lambda: self.reason,
            options=ApiOptions(max_body_bytes=4096, **options),  # type: ignore[arg-type]
        )

    def _make_session(self, call_id: str) -> CallSession:
        self.lines.append(_PickyLine())
        engines = EngineSet(asr=ScriptedAsr(), llm=ScriptedLlm(), tts=ScriptedTts(), turn=None)
        return CallSession(
            call_id=call_id,
            connection=self.lines[-1],
            engines=engines,
            endpointer=Endpointer(gate=LevelVad(), judge=LevelVad()),
            options=SessionOptions(),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Client]:
        async with TestClient(TestServer(self.api.make_application())) as client:
            try:
                yield client
            finally:
                await self.calls.aclose("over")


async def _check_a_normal_call(client: Client, **headers: str) -> None:
    async with client.post("/calls", data="audio", headers=_SDP | headers) as response:
        assert response.status == 201
        location = response.headers["Location"]
    async with client.delete(location, headers=headers) as response:
        assert response.status == 204


async def test_an_sdp_offer_is_answered_with_sdp_and_a_location() -> None:
    async with _Server().running() as client, client.post("/calls", data="audio", headers=_SDP) as response:
        assert response.status == 201
        assert response.content_type == "application/sdp"
        assert await response.text() == "answer to audio"
        assert response.headers["Location"].startswith("/calls/")


async def test_a_json_offer_is_answered_with_json() -> None:
    async with _Server().running() as client:
        response = await client.post("/calls", json={"sdp": "audio", "type": "offer"})
        assert response.status == 201
        answer = await response.json()
        assert response.headers["Location"] == f"/calls/{answer['call_id']}"
    assert (answer["sdp"], answer["type"], answer["control"]) == ("answer to audio", "answer", None)


async def test_delete_hangs_up_and_the_call_is_gone() -> None:
    server = _Server()
    async with server.running() as client:
        location = (await client.post("/calls", data="audio", headers=_SDP)).headers["Location"]
        assert len(server.calls) == 1
        assert (await client.delete(location)).status == 204
        assert len(server.calls) == 0
        assert server.lines[0].closed == ["the caller hung up"]
        assert (await client.delete(location)).status == 404


async def test_candidates_trickle_as_a_fragment_and_as_json() -> None:
    server = _Server()
    fragment = (
        "a=ice-ufrag:abcd\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\n"
        "a=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\na=end-of-candidates\r\n"
    )
    async with server.running() as client:
        location = (await client.post("/calls", data="audio", headers=_SDP)).headers["Location"]
        headers = {"Content-Type": "application/trickle-ice-sdpfrag"}
        assert (await client.patch(location, data=fragment, headers=headers)).status == 204
        body = {"candidate": "candidate:2 1 udp", "sdpMid": "0", "sdpMLineIndex": 0}
        assert (await client.patch(location, json=body)).status == 204
        assert (await client.patch(location, json={"candidate": "nonsense"})).status == 400
        assert (await client.patch(location, data="x", headers={"Content-Type": "text/plain"})).status == 415
        assert (await client.patch("/calls/none", json=body)).status == 404
    assert server.lines[0].candidates == [
        ("candidate:1 1 udp 1 127.0.0.1 9 typ host", "0", None),
        (None, "0", None),
        ("candidate:2 1 udp", "0", 0),
    ]


@pytest.mark.parametrize(
    ("body", "headers", "status", "word"),
    [
        (b"video only", _SDP, 400, "no_audio"),
        (b"\xff\xfe", _SDP, 400, "UTF-8"),
        (b"no port", _SDP, 503, "no UDP port"),
        (b"broken", _SDP, 500, "our side"),
        (b"audio" + b"x" * 1_000_000, _SDP, 413, "larger"),
        (b"audio", {"Content-Type": "text/plain"}, 415, "application/sdp"),
        (b"{", {"Content-Type": "application/json"}, 400, "JSON"),
        (b"[" * 4000, {"Content-Type": "application/json"}, 400, "JSON"),
        (b'{"sdp": 5}', {"Content-Type": "application/json"}, 400, "JSON"),
        (b'{"sdp": "audio", "type": "answer"}', {"Content-Type": "application/json"}, 400, "offer"),
    ],
    ids=[
        "no audio",
        "no text",
        "no port",
        "our fault",
        "1 MB",
        "type",
        "broken JSON",
        "deep JSON",
        "wrong JSON",
        "an answer",
    ],
)
async def test_bad_offers_are_refused_with_a_reason_and_the_next_call_works(
    body: bytes, headers: dict[str, str], status: int, word: str
) -> None:
    server = _Server()
    async with server.running() as client:
        async with client.post("/calls", data=body, headers=headers) as response:
            assert response.status == status
            assert word in (await response.json())["error"]
        assert len(server.calls) == 0
        await _check_a_normal_call(client)


async def test_a_chunked_body_without_a_length_is_limited_too() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 1000

    async with _Server().running() as client:
        async with client.post("/calls", data=endless(), headers=_SDP) as response:
            assert response.status == 413
        await _check_a_normal_call(client)


async def test_no_call_is_taken_before_the_engines_are_ready() -> None:
    server = _Server()
    server.reason = "loading whisper"
    async with server.running() as client:
        for response in (await client.post("/calls", data="audio", headers=_SDP), await client.get("/readyz")):
            assert response.status == 503
            assert "loading whisper" in await response.text()
            assert int(response.headers["Retry-After"]) > 0
        assert (await client.get("/healthz")).status == 200
        server.reason = None
        assert (await client.get("/readyz")).status == 200
        await _check_a_normal_call(client)


async def test_a_call_too_many_is_told_to_try_later() -> None:
    server = _Server(max_calls=1)
    async with server.running() as client:
        location = (await client.post("/calls", data="audio", headers=_SDP)).headers["Location"]
        refused = await client.post("/calls", data="audio", headers=_SDP)
        assert refused.status == 503
        assert "Retry-After" in refused.headers
        await client.delete(location)
        await _check_a_normal_call(client)


async def test_a_body_that_its_encoding_does_not_fit_is_refused() -> None:
    async with _Server().running() as client:
        response = await client.post("/calls", data=b"not gzip", headers=_SDP | {"Content-Encoding": "gzip"})
        assert response.status == 400
        await _check_a_normal_call(client)


@pytest.mark.parametrize(
    "authorization", [None, "Bearer wrong", "Basic secret", "Bearer", "secret", "Bearer ü", "Bearer \udcff"]
)
async def test_without_the_token_nothing_of_a_body_is_read(authorization: str | None) -> None:
    server = _Server(access_token="secret")
    read: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        for _ in range(3):
            read.append(b"x")
            yield b"x" * 1000
            await asyncio.sleep(0.2)

    headers = dict(_SDP) | ({"Authorization": authorization} if authorization else {})
    async with server.running() as client:
        response = await client.post("/calls", data=body(), headers=headers)
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert len(read) < 3, "the answer came before the body was whole"
        assert (await client.delete("/calls/some", headers=headers)).status == 401
        assert (await client.get("/readyz")).status == 200
        await _check_a_normal_call(client, Authorization="Bearer secret")


async def test_the_page_is_served_with_headers_that_keep_it_to_itself(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>call</title>")
    (tmp_path / "call.js").write_text("export {}")
    async with _Server(page_folder=tmp_path).running() as client:
        page = await client.get("/")
        assert page.status == 200
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert (await client.get("/call.js")).content_type in {"text/javascript", "application/javascript"}
        assert (await client.get("/../peer/config.py")).status == 404
        assert (await client.get("/nothing")).status == 404


async def test_a_shutdown_ends_every_call_with_a_reason_and_takes_no_more() -> None:
    server = _Server()
    async with server.running() as client:
        for _ in range(3):
            await client.post("/calls", data="audio", headers=_SDP)
        await server.calls.aclose("the server is shutting down")
        assert [line.closed for line in server.lines] == [["the server is shutting down"]] * 3
        assert (await client.post("/calls", data="audio", headers=_SDP)).status == 503


async def test_one_call_s_failure_reaches_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _Server()
    async with server.running() as client:
        for _ in range(2):
            await client.post("/calls", data="audio", headers=_SDP)
        broken, sound = server.lines
        for line in server.lines:
            assert line.on_state is not None
            line.on_state("connected", "")
        sessions = list(server.calls._sessions.values())

        def explode(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a fault of ours")

        monkeypatch.setattr(sessions[0].conversation, "handle_audio", explode)
        for line in server.lines:
            assert line.on_audio is not None
            line.on_audio([], 0.0)
        await asyncio.sleep(0.3)
        assert broken.closed == ["internal error"]
        assert sound.closed == []
        assert len(server.calls) == 1
