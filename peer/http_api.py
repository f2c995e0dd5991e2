"""Signalling over HTTP: calls are resources, in the manner of WHIP (RFC 9725), but two-way.

    POST   /calls      an offer in, 201 with the answer and `Location: /calls/ID` out; SDP or JSON, answered in kind
    PATCH  /calls/ID   trickled candidates (application/trickle-ice-sdpfrag, RFC 8840, or JSON), 204
    DELETE /calls/ID   hang up, 204
    GET    /healthz    the process lives; GET /readyz: it takes calls, else 503 and why

Everything else is the page. A token is checked before anything of a body is read.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from peer.calls import Calls
from peer.errors import SignalingError
from transport.errors import RemoteProtocolError

_SDP: Final = "application/sdp"
_JSON: Final = "application/json"
_SDP_FRAGMENT: Final = "application/trickle-ice-sdpfrag"
_RETRY_AFTER_S: Final = "5"
_BODY_TIMEOUT_S: Final = 15.0
"""A body that takes longer than this is a connection held open for its own sake."""
_PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; connect-src 'self' https: wss:; img-src 'self' data:; "
    "media-src 'self' blob:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_LOG = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Offer(msgspec.Struct, frozen=True):
    sdp: str
    type: str = "offer"


class _Candidate(msgspec.Struct, frozen=True, rename="camel"):
    candidate: str | None = None
    sdp_mid: str | None = None
    sdp_m_line_index: int | None = msgspec.field(default=None, name="sdpMLineIndex")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a JSON offer is answered with; `control` says where the QUIC control channel is, if there is one."""

    sdp: str
    type: str
    call_id: str
    control: dict[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """Who may ask, and how much."""

    access_token: str = ""
    max_body_bytes: int = 65_536
    page_folder: Path | None = None
    control: Callable[[str, str], dict[str, object] | None] = lambda _call_id, _host: None
    """Returns `control` of a call's answer, by the call's id and the host that the caller reached."""
    recorded: bool = False
    """Whether calls are recorded, which /readyz tells before anybody calls."""
    health: Callable[[], dict[str, object]] = dict
    """Returns what /healthz tells beside its status."""


class HttpApi:
    """The HTTP face of `calls`; `not_ready_reason` says why no call can be taken, None when one can."""

    def __init__(self, *, calls: Calls, not_ready_reason: Callable[[], str | None], options: ApiOptions) -> None:
        self._calls: Final = calls
        self._not_ready_reason: Final = not_ready_reason
        self._options: Final = options

    def make_application(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(middlewares=[self._answer_errors], client_max_size=self._options.max_body_bytes)
        app.router.add_post("/calls", self._create_call)
        app.router.add_patch("/calls/{call_id}", self._trickle)
        app.router.add_delete("/calls/{call_id}", self._hang_up)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        folder = self._options.page_folder
        if folder is not None and folder.is_dir():
            app.router.add_get("/", self._page)
            app.router.add_static("/", folder)
        app.on_response_prepare.append(_add_page_headers)
        return app

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path == "/calls" or request.path.startswith("/calls/"):
                self._check_token(request)
            return await handler(request)
        except SignalingError as error:
            return _refuse(error.http_status, str(error))
        except web.HTTPRequestEntityTooLarge:
            return _refuse(413, f"the body is larger than {self._options.max_body_bytes} bytes")
        except web.HTTPException:
            raise
        except Exception:
            _LOG.exception("%s %s failed", request.method, request.path)
            return _refuse(500, "something broke on our side")

    def _check_token(self, request: web.Request) -> None:
        expected = self._options.access_token
        if not expected:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            token.strip().encode("utf-8", "surrogateescape"), expected.encode()
        ):
            raise SignalingError(401, "this server wants its access token, as 'Authorization: Bearer TOKEN'")

    async def _create_call(self, request: web.Request) -> web.Response:
        reason = self._not_ready_reason()
        if reason is not None:
            raise SignalingError(503, f"not ready yet: {reason}")
        if request.content_type not in {_SDP, _JSON}:
            raise SignalingError(415, f"an offer is {_SDP} or {_JSON}, not {request.content_type}")
        body = await self._read(request)
        if request.content_type == _SDP:
            call_id, answer = await self._calls.create(body)
            return web.Response(status=201, text=answer, content_type=_SDP, headers={"Location": f"/calls/{call_id}"})
        offer = _decode(body, _Offer)
        if offer.type != "offer":
            raise SignalingError(400, f"a call begins with an offer, not with {offer.type!r}")
        call_id, answer = await self._calls.create(offer.sdp)
        payload = Answer(
            sdp=answer, type="answer", call_id=call_id, control=self._options.control(call_id, request.url.host or "")
        )
        return web.Response(
            status=201,
            body=msgspec.json.encode(payload),
            content_type=_JSON,
            headers={"Location": f"/calls/{call_id}"},
        )

    async def _trickle(self, request: web.Request) -> web.Response:
        session = self._calls.find(request.match_info["call_id"])
        if request.content_type not in {_SDP_FRAGMENT, _JSON}:
            raise SignalingError(415, f"candidates are {_SDP_FRAGMENT} or {_JSON}, not {request.content_type}")
        body = await self._read(request)
        candidates = _parse_fragment(body) if request.content_type == _SDP_FRAGMENT else [_decode(body, _Candidate)]
        try:
            for item in candidates:
                await session.add_candidate(item.candidate, item.sdp_mid, item.sdp_m_line_index)
        except RemoteProtocolError as error:
            raise SignalingError(400, f"{error} ({error.code})") from error
        return web.Response(status=204)

    async def _hang_up(self, request: web.Request) -> web.Response:
        await self._calls.hang_up(request.match_info["call_id"], "the caller hung up")
        return web.Response(status=204)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "alive", "calls": len(self._calls)} | self._options.health())

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._not_ready_reason()
        if reason is None:
            return web.json_response({"status": "ready", "recorded": self._options.recorded})
        return web.json_response(
            {"status": "not ready", "reason": reason}, status=503, headers={"Retry-After": _RETRY_AFTER_S}
        )

    async def _page(self, _request: web.Request) -> web.FileResponse:
        assert self._options.page_folder is not None
        return web.FileResponse(self._options.page_folder / "index.html")

    async def _read(self, request: web.Request) -> str:
        limit = self._options.max_body_bytes
        if request.content_length is not None and request.content_length > limit:
            raise SignalingError(413, f"the body is larger than {limit} bytes")
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                return (await request.read()).decode("utf-8")
        except TimeoutError:
            raise SignalingError(408, "the body did not come in time") from None
        except UnicodeDecodeError:
            raise SignalingError(400, "the body is not UTF-8") from None
        except web.RequestPayloadError:
            raise SignalingError(400, "the body is not what its Content-Encoding says") from None


def _decode(body: str, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SignalingError(400, f"the body is not the JSON it should be: {error}") from error


def _parse_fragment(body: str) -> list[_Candidate]:
    """Return the candidates of an SDP fragment (RFC 8840 §9), each with the media section it stands in."""
    found: list[_Candidate] = []
    mid: str | None = None
    for line in body.splitlines():
        if line.startswith("a=mid:"):
            mid = line[len("a=mid:") :].strip()
        elif line.startswith("a=candidate:"):
            found.append(_Candidate(candidate=line[len("a=") :].strip(), sdp_mid=mid))
        elif line.startswith("a=end-of-candidates"):
            found.append(_Candidate(candidate=None, sdp_mid=mid))
    return found


def _refuse(status: int, message: str) -> web.Response:
    headers = {"Retry-After": _RETRY_AFTER_S} if status == 503 else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    response = web.json_response({"error": message}, status=status, headers=headers)
    # Whatever the sender still has to say belongs to a request that is refused already.
    response.force_close()
    return response


async def _add_page_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _PAGE_HEADERS.items():
        response.headers.setdefault(name, value)
