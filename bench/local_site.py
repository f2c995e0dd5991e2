"""An aiohttp application on a free port of 127.0.0.1, for as long as a benchmark needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def local_site(app: web.Application) -> AsyncIterator[str]:
    """Serve `app` and yield its address, such as http://127.0.0.1:40123; raises OSError where no port is free."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
