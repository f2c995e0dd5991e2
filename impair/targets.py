"""Systems under test, and how a call to each is set up: who gets the offer, and what its answer looks like."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import aiohttp

from impair.errors import TargetError

Kind = Literal["antiphon", "offer", "page"]
_NAME = re.compile(r"[A-Za-z0-9 ._-]{1,40}")
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A system under test: `antiphon` takes `POST /calls`, `offer` a JSON offer at its URL, `page` is a web page."""

    name: str
    kind: Kind
    url: str
    selector: str = "button"
    """Of a page: the CSS selector of the button that begins a call."""

    @classmethod
    def parse(cls, text: str) -> Target:
        """`[NAME=][KIND:]URL`, for a page `page:URL#SELECTOR`.

        The kind is read off the URL where it is not given, the name off the kind.
        """
        name, equals, rest = text.partition("=")
        if not equals or "/" in name:
            name, rest = "", text
        head, _, tail = rest.partition(":")
        kind: Kind
        if head in {"antiphon", "offer", "page"}:
            kind, url = head, tail  # type: ignore[assignment]
        else:
            url = rest
            kind = "offer" if urlsplit(url).path.rstrip("/").endswith("offer") else "antiphon"
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise TargetError(f"{text!r} is no target; write [NAME=][antiphon:|offer:|page:]http://HOST:PORT/PATH")
        if name and not _NAME.fullmatch(name):
            raise TargetError(f"{name!r} is no name for a target; letters, digits, spaces, . _ - are")
        if kind == "page" and parts.fragment:
            return cls(name=name or kind, kind=kind, url=urldefrag(url).url, selector=unquote(parts.fragment))
        return cls(name=name or kind, kind=kind, url=url)


@dataclass(slots=True)
class Signaling:
    """Sets up one call over HTTP at `url`, which may be a proxy's, and hangs it up."""

    kind: Kind
    url: str
    http: aiohttp.ClientSession
    _location: str | None = None

    async def call(self, offer_sdp: str) -> str:
        """The answer to the offer; TargetError where the target gives none."""
        url = urljoin(self.url.rstrip("/") + "/", "calls") if self.kind == "antiphon" else self.url
        body = {"sdp": offer_sdp, "type": "offer"}
        try:
            async with self.http.post(url, json=body, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as response:
                if response.status not in {200, 201}:
                    raise TargetError(f"the target refuses the call ({response.status}): {await _reason(response)}")
                answer: Any = await response.json(content_type=None)
                if "Location" in response.headers:
                    self._location = urljoin(url, response.headers["Location"])
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TargetError(f"the target does not answer: {error or 'in time'}") from error
        except ValueError as error:
            raise TargetError("the target answers with something that is no JSON") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("sdp"), str):
            raise TargetError("the target's answer has no `sdp`")
        return str(answer["sdp"])

    async def hang_up(self) -> None:
        """End the call where the target named it; others learn of it by the end of the media."""
        if self._location is None:
            return
        try:
            async with self.http.delete(self._location, timeout=aiohttp.ClientTimeout(total=5.0)):
                pass
        except (aiohttp.ClientError, TimeoutError):
            return


async def _reason(response: aiohttp.ClientResponse) -> str:
    text = (await response.text(errors="replace"))[:200]
    return text.strip() or response.reason or "no reason given"
