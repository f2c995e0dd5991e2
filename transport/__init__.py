"""Adapters: aiortc (SRTP audio in and out), aioquic (control channel), libopus."""
