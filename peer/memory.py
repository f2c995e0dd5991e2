"""Gives memory that calls have freed back to the system, which glibc by itself keeps for later."""

from __future__ import annotations

import contextlib
import ctypes
import gc


def release_free_memory() -> None:
    """Collect garbage and return freed heap pages to the system (glibc's malloc_trim); some 50 ms, so not in a call."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
