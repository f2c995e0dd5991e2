"""What goes wrong with a network asked for: always the asker's mistake, named in words he can act on."""

from __future__ import annotations


class ImpairError(Exception):
    """Root of this package's errors; the message is fit for a command line."""


class ProfileError(ImpairError):
    """No such profile, or a stage whose parameters contradict themselves."""


class TraceError(ImpairError):
    """A trace that cannot be read or replayed; names the file and the line."""


class RelayError(ImpairError):
    """An address the relay cannot listen on or send to, or a command it does not know."""


class TargetError(ImpairError):
    """The system under test did not answer as its kind of target must."""
