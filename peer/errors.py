"""What can go wrong above the transport.

AntiphonError
├── SignalingError       a request over HTTP that cannot be served; carries the status
├── EngineError          an ASR, LLM or TTS engine failed; `retryable` says whether the same call may work again
├── ConfigError          an option or a configuration file that makes no sense
└── ModelError           weights that cannot be had, or are not what the manifest says
"""

from __future__ import annotations

from transport.errors import AntiphonError


class SignalingError(AntiphonError):
    """A request that is refused with `http_status` and a sentence for its sender."""

    def __init__(self, http_status: int, message: str) -> None:
        super().__init__(message)
        self.http_status = http_status


class EngineError(AntiphonError):
    """An engine failed; `retryable` says whether the same call may succeed now or later."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class ConfigError(AntiphonError):
    """An option that makes no sense; the message says which and what to write instead."""


class ModelError(AntiphonError):
    """Model weights that are missing or wrong; the message says what to do."""
