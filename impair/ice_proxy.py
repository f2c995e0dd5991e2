"""An HTTP proxy in front of a signaling URL: whatever SDP goes through it comes out pointing through the relay.

It knows SDP where it meets it: bodies of `application/sdp` and `application/trickle-ice-sdpfrag`, and in JSON the
values of `sdp` and `candidate`, at any depth. A `control.url` in an answer, as Antiphon's QUIC channel has, is led
through the relay too. Everything else, pages included, passes unchanged, so the system under test needs no change.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from impair.errors import RelayError, TargetError
from impair.flows import Address
from impair.ice import AddRoute, CandidateRewriter
from impair.profile import Direction

_SDP = "application/sdp"
_FRAGMENT = "application/trickle-ice-sdpfrag"
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "host",
     "content-encoding", "accept-encoding", "proxy-authorization", "proxy-authenticate"}
)  # fmt: skip
_MAX_BODY_BYTES = 16 * 2**20


class IceProxy:
    """An async context manager that serves at `url` what `target` serves; `add_route` opens relays.

    `behind_nat`: see CandidateRewriter.
    """

    def __init__(
        self, target: str, add_route: AddRoute, *, listen: Address = ("127.0.0.1", 0), behind_nat: bool = False
    ) -> None:
        parts = urlsplit(target)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise TargetError(f"{target!r} is no http or https URL")
        self._target = parts
        self._listen = listen
        self.rewriter = CandidateRewriter(add_route, behind_nat)
        self._runner: web.AppRunner | None = None
        self._client: aiohttp.ClientSession | None = None
        self._bound: Address = listen

    @property
    def url(self) -> str:
        """The URL that stands in for the target's, its path kept."""
        host, port = self._bound
        return f"http://{host}:{port}{self._target.path}" + (f"?{self._target.query}" if self._target.query else "")

    async def __aenter__(self) -> Self:
        """Listen."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._client = aiohttp.ClientSession(auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar())
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            site = web.TCPSite(self._runner, *self._listen)
            await site.start()
        except OSError as error:
            await self.__aexit__()
            raise RelayError(f"cannot listen on {self._listen[0]}:{self._listen[1]}: {error.strerror}") from error
        self._bound = self._runner.addresses[0][:2]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening; relays stay as they are."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._pass_on(request)
        except RelayError as error:
            return web.json_response({"error": f"the relay cannot lead there: {error}"}, status=502)

    async def _pass_on(self, request: web.Request) -> web.Response:
        assert self._client is not None
        body = await request.read()
        if body:
            body = await self._rewrite(body, request.content_type, "down")
        url = urlunsplit((self._target.scheme, self._target.netloc, request.path_qs.partition("?")[0],
                          request.query_string, ""))  # fmt: skip
        try:
            async with self._client.request(
                request.method, url, data=body or None, headers=_end_to_end(request.headers), allow_redirects=False,
                ssl=False,  # a system under test has the certificate it has
            ) as response:  # fmt: skip
                answer = await response.read()
                content_type = response.content_type
                headers = _end_to_end(response.headers)
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            return web.json_response({"error": f"the target does not answer: {error}"}, status=502)
        if answer:
            answer = await self._rewrite(answer, content_type, "up")
        if "Location" in headers:
            headers["Location"] = self._here(headers["Location"])
        return web.Response(status=status, headers=headers, body=answer)

    def _here(self, location: str) -> str:
        """The target's own absolute URLs lead back through this proxy; others, and relative ones, stay."""
        parts = urlsplit(location)
        if parts.netloc != self._target.netloc:
            return location
        return urlunsplit(("http", f"{self._bound[0]}:{self._bound[1]}", parts.path, parts.query, parts.fragment))

    async def _rewrite(self, body: bytes, content_type: str, way: Direction) -> bytes:
        try:
            if content_type == _SDP:
                return (await self._description(body.decode(), way)).encode()
            if content_type == _FRAGMENT:
                return (await self._fragment(body.decode(), way)).encode()
            if content_type == "application/json" or content_type.endswith("+json"):
                return json.dumps(await self._json(json.loads(body), way)).encode()
        except (UnicodeDecodeError, ValueError, RecursionError):
            return body  # what cannot be read is the other side's to refuse
        return body

    async def _description(self, sdp: str, way: Direction) -> str:
        return await (self.rewriter.offer(sdp) if way == "down" else self.rewriter.answer(sdp))

    async def _fragment(self, text: str, way: Direction) -> str:
        lines = [
            line if not line.startswith("a=candidate:") else await self.rewriter.candidate(line, way)
            for line in text.splitlines()
        ]
        return "".join(f"{line}\r\n" for line in lines if line is not None)

    async def _json(self, value: Any, way: Direction) -> Any:
        if isinstance(value, list):
            return [await self._json(item, way) for item in value]
        if not isinstance(value, dict):
            return value
        result: dict[str, Any] = {}
        for key, item in value.items():
            if key == "sdp" and isinstance(item, str):
                result[key] = await self._description(item, way)
            elif key == "candidate" and isinstance(item, str) and item:
                result[key] = await self.rewriter.candidate(item, way) or await self.rewriter.nowhere(way)
            elif key == "control" and isinstance(item, dict) and isinstance(item.get("url"), str):
                result[key] = item | {"url": await self._through_relay(item["url"], way)}
            else:
                result[key] = await self._json(item, way)
        return result

    async def _through_relay(self, url: str, way: Direction) -> str:
        """A URL of a UDP service (QUIC), reached through a relay."""
        parts = urlsplit(url)
        if not parts.hostname or not parts.port:
            return url
        host, port = await self.rewriter.relay_to((await _numeric(parts.hostname, parts.port), parts.port), way)
        return urlunsplit((parts.scheme, f"{host}:{port}", parts.path, parts.query, parts.fragment))


async def _numeric(host: str, port: int) -> str:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port)
    return str(found[0][4][0])


def _end_to_end(headers: Any) -> CIMultiDict[str]:
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        if name.lower() not in _HOP_BY_HOP:
            kept.add(name, value)
    return kept
