"""The root of the error tree, and what can go wrong between two peers.

AntiphonError
├── LocalProtocolError   we were about to do what the protocol forbids: a bug on our side
├── RemoteProtocolError  the peer sent what the protocol forbids; `code` says which rule
├── NoAddressError       there is no local address or free port for media
└── OpusError            libopus is missing, or refused a setting
"""

from __future__ import annotations


class AntiphonError(Exception):
    """The root of every error Antiphon raises on purpose."""


class LocalProtocolError(AntiphonError):
    """We were about to break the protocol."""


class RemoteProtocolError(AntiphonError):
    """The peer broke the protocol; `code` names the rule in snake_case."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class OpusError(AntiphonError):
    """libopus is missing or refused a setting; the message says what to do."""


class NoAddressError(AntiphonError):
    """No socket for media could be opened; the message says which addresses and ports were tried."""
