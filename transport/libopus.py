"""The C library behind `opus.py`: found, loaded once, its functions typed.

PyAV's wheel carries a newer libopus than most systems do, under a hashed name; it is looked for first, then the
system's. Numbers are those of opus_defines.h.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
from pathlib import Path

from transport.errors import OpusError

APPLICATION_VOIP = 2048
BANDWIDTH_WIDEBAND = 1103
SIGNAL_VOICE = 3001
RESET_STATE = 4028

SET_BITRATE = 4002
SET_MAX_BANDWIDTH = 4004
SET_COMPLEXITY = 4010
SET_INBAND_FEC = 4012
SET_PACKET_LOSS_PERC = 4014
SET_DTX = 4016
SET_SIGNAL = 4024

_INT_P = ctypes.POINTER(ctypes.c_int)
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "opus_get_version_string": (ctypes.c_char_p, []),
    "opus_strerror": (ctypes.c_char_p, [ctypes.c_int]),
    "opus_decoder_create": (ctypes.c_void_p, [ctypes.c_int32, ctypes.c_int, _INT_P]),
    "opus_decoder_destroy": (None, [ctypes.c_void_p]),
    "opus_decode": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int, ctypes.c_int],
    ),
    "opus_encoder_create": (ctypes.c_void_p, [ctypes.c_int32, ctypes.c_int, ctypes.c_int, _INT_P]),
    "opus_encoder_destroy": (None, [ctypes.c_void_p]),
    "opus_encode": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int32],
    ),
    "opus_packet_get_nb_samples": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32]),
    # Variadic in C: only the fixed arguments are declared, so that ctypes passes the rest by the variadic convention.
    "opus_encoder_ctl": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "opus_decoder_ctl": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
}


def find_libopus() -> list[str]:
    """Return where libopus may be, best first: inside PyAV's wheel (Linux, macOS, Windows), then the system's."""
    found: list[str] = []
    spec = importlib.util.find_spec("av")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        patterns = ("../av.libs/libopus*.so*", ".dylibs/libopus*.dylib", "../av.libs/*opus*.dll")
        for pattern in patterns:
            found += sorted(str(path) for path in (package / Path(pattern).parent).glob(Path(pattern).name))
    system = ctypes.util.find_library("opus")
    return found + ([system] if system else [])


@functools.cache
def load() -> ctypes.CDLL:
    """Return libopus with its functions typed; raises OpusError where there is none."""
    for path in find_libopus():
        try:
            library = ctypes.CDLL(path)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError):
            continue
        return library
    raise OpusError("no libopus: install the `av` wheel, or the system's library (Debian: apt-get install libopus0)")


def error_text(code: int) -> str:
    """Return libopus's own words for a negative result."""
    text: bytes = load().opus_strerror(code)
    return text.decode()
