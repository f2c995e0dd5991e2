"""The calls of a server: made, found, hung up, and never in each other's way."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from peer.errors import SignalingError
from peer.memory import release_free_memory
from peer.session import CallSession
from transport.errors import AntiphonError, RemoteProtocolError

_LOG = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S: Final = 5.0
_TIDY_AFTER_S: Final = 1.0

MakeSession = Callable[[str], CallSession]
"""Makes the session of a new call from its id."""


class Calls:
    """Every call that is up, each in a task of its own; at most `max_calls` at once."""

    def __init__(self, *, make_session: MakeSession, max_calls: int) -> None:
        self._make_session: Final = make_session
        self._max_calls: Final = max_calls
        self._sessions: Final[dict[str, CallSession]] = {}
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}
        self._closing = False
        self._tidying: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    async def create(self, offer_sdp: str) -> tuple[str, str]:
        """Return (call id, answer) of a new call; raises SignalingError."""
        if self._closing:
            raise SignalingError(503, "the server is shutting down")
        if len(self._sessions) >= self._max_calls:
            raise SignalingError(503, f"all {self._max_calls} lines are taken; try again later")
        call_id = secrets.token_urlsafe(12)
        session = self._make_session(call_id)
        self._sessions[call_id] = session
        try:
            answer = await session.answer(offer_sdp)
        except BaseException as error:
            self._sessions.pop(call_id)
            await session.abandon()
            if isinstance(error, RemoteProtocolError):
                raise SignalingError(400, f"{error} ({error.code})") from error
            if isinstance(error, AntiphonError):
                raise SignalingError(503, str(error)) from error
            raise
        self._tasks[call_id] = asyncio.create_task(self._hold(session), name=f"call {call_id}")
        return call_id, answer

    def find(self, call_id: str) -> CallSession:
        """Return the call with that id; raises SignalingError(404)."""
        session = self._sessions.get(call_id)
        if session is None:
            raise SignalingError(404, "no such call: it has ended, or never was")
        return session

    async def hang_up(self, call_id: str, reason: str) -> None:
        """End a call and return when nothing of it is left; raises SignalingError(404)."""
        self.find(call_id).hang_up(reason)
        task = self._tasks.get(call_id)
        if task is not None:
            await asyncio.wait({task}, timeout=_CLOSE_TIMEOUT_S)

    async def aclose(self, reason: str) -> None:
        """End every call and take no more."""
        self._closing = True
        for session in self._sessions.values():
            session.hang_up(reason)
        tasks = set(self._tasks.values())
        if tasks:
            _, slow = await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT_S)
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)
        if self._tidying is not None:
            self._tidying.cancel()

    async def _hold(self, session: CallSession) -> None:
        try:
            await session.run()
        except Exception:
            _LOG.exception("call %s failed", session.call_id)
        finally:
            self._sessions.pop(session.call_id, None)
            self._tasks.pop(session.call_id, None)
            if self._tidying is not None:
                self._tidying.cancel()
            self._tidying = asyncio.get_running_loop().call_later(_TIDY_AFTER_S, self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        if not self._sessions:  # nobody is there to wait while the heap is walked
            release_free_memory()
