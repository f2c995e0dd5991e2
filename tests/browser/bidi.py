"""Drives Firefox over WebDriver BiDi (W3C), which every Firefox speaks by itself; no driver program is needed."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.browser.install import FIREFOX, require

_LISTENING = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")
_PREFERENCES: dict[str, bool | int | str] = {
    "media.navigator.streams.fake": True,
    "media.navigator.permission.disabled": True,
    # A machine without a sound card gives Firefox no clock for WebAudio; its own tests use this one.
    "media.cubeb.force_mock_context": True,
    "media.autoplay.default": 0,
    "media.autoplay.block-webaudio": False,
    "app.update.enabled": False,
    "app.normandy.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
    "extensions.update.enabled": False,
}


class BidiError(Exception):
    """Firefox refused a command, or the script it ran threw."""


class Firefox:
    """One tab of a headless Firefox."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.console: list[str] = []
        self._socket = socket
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._context = ""

    async def begin(self) -> None:
        """Open the session and adopt the first tab."""
        await self.command("session.new", capabilities={})
        tree = await self.command("browsingContext.getTree")
        self._context = tree["contexts"][0]["context"]
        await self.command("session.subscribe", events=["log.entryAdded"])

    async def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; raises BidiError."""
        number = next(self._ids)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return await asyncio.wait_for(self._waiting[number], 60)

    async def receive(self) -> None:
        """Take in what Firefox sends until it closes the socket."""
        async for frame in self._socket:
            message = json.loads(frame.data)
            if message["type"] == "event":
                self.console.append(str(message["params"].get("text")))
                continue
            waiting = self._waiting.pop(message["id"])
            if message["type"] == "success":
                waiting.set_result(message["result"])
            else:
                waiting.set_exception(BidiError(f"{message['error']}: {message['message']}"))

    async def preload(self, function: str) -> None:
        """Run `function` (JavaScript source of one) in every page before the page's own scripts."""
        await self.command("script.addPreloadScript", functionDeclaration=function)

    async def goto(self, url: str) -> None:
        """Load `url` and wait for it."""
        await self.command("browsingContext.navigate", context=self._context, url=url, wait="complete")

    async def resize(self, width: int, height: int) -> None:
        """Give the page this many CSS pixels."""
        viewport = {"width": width, "height": height}
        await self.command("browsingContext.setViewport", context=self._context, viewport=viewport)

    async def evaluate(self, expression: str) -> Any:
        """Return the JSON value of `expression`, awaited; a user's press of a button is deemed to have come before."""
        result = await self.command(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})) ?? 'null')()",
            target={"context": self._context},
            awaitPromise=True,
            userActivation=True,
        )
        if result["type"] == "exception":
            raise BidiError(result["exceptionDetails"]["text"])
        return json.loads(result["result"]["value"])

    async def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page to `path` (PNG)."""
        shot = await self.command("browsingContext.captureScreenshot", context=self._context, origin="document")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def launch(**preferences: bool | int | str) -> AsyncIterator[Firefox]:
    """Start Firefox with a fresh profile, a fake microphone and these preferences; end it afterwards."""
    with tempfile.TemporaryDirectory(prefix="firefox-", ignore_cleanup_errors=True) as profile:
        lines = (
            f"user_pref({json.dumps(name)}, {json.dumps(value)});"
            for name, value in (_PREFERENCES | preferences).items()
        )
        Path(profile, "user.js").write_text("\n".join(lines), encoding="utf-8")
        arguments = ("--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0", "about:blank")
        program = await asyncio.create_subprocess_exec(
            require(FIREFOX), *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            url = await asyncio.wait_for(_listening_url(program), 60)
            async with aiohttp.ClientSession() as http, http.ws_connect(f"{url}/session", max_msg_size=0) as socket:
                firefox = Firefox(socket)
                tasks = [asyncio.create_task(firefox.receive()), asyncio.create_task(_drain(program.stderr))]
                await firefox.begin()
                yield firefox
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            with suppress(ProcessLookupError):
                program.terminate()
            await program.wait()


async def _drain(pipe: asyncio.StreamReader | None) -> None:
    """Read and drop what Firefox says, so that its pipe never fills."""
    while pipe is not None and await pipe.read(65_536):
        pass


async def _listening_url(program: asyncio.subprocess.Process) -> str:
    assert program.stderr is not None
    said = []
    async for line in program.stderr:
        if found := _LISTENING.search(line):
            return found.group(1).decode()
        said.append(line.decode(errors="replace"))
    raise AssertionError(f"Firefox did not start: {''.join(said[-20:])}")
