"""What Chromium plays, as sound: the page takes the received track apart and hands its samples over."""

from __future__ import annotations

import base64

import numpy as np
import soxr

from impair.chromium import DevTools
from jitter.decoder import Samples

RATE_HZ = 48_000
_PIECE_SAMPLES = 1_000_000

_RECORD = """
async () => {
  window.heard = [];
  window.heardRate = 0;
  const describe = RTCPeerConnection.prototype.setRemoteDescription;
  RTCPeerConnection.prototype.setRemoteDescription = function (...given) {
    this.addEventListener('track', async ({track}) => {
      const reader = new MediaStreamTrackProcessor({track}).readable.getReader();
      for (;;) {
        const {value, done} = await reader.read();
        if (done) return;
        const plane = new Float32Array(value.numberOfFrames);
        value.copyTo(plane, {planeIndex: 0, format: 'f32-planar'});
        window.heardRate = value.sampleRate;
        window.heard.push(Int16Array.from(plane, (x) => Math.max(-1, Math.min(1, x)) * 32767));
        value.close();
      }
    });
    return describe.apply(this, given);
  };
}
"""
_JOIN = """
async () => {
  const total = window.heard.reduce((sum, piece) => sum + piece.length, 0);
  window.joined = new Int16Array(total);
  let at = 0;
  for (const piece of window.heard) { window.joined.set(piece, at); at += piece.length; }
  window.heard = [];
  return [total, window.heardRate];
}
"""
_TAKE = """
async (from, upto) => {
  const piece = window.joined.slice(from, upto);
  const bytes = new Uint8Array(piece.buffer);
  let text = '';
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
}
"""


async def record(page: DevTools) -> None:
    """Keep what every track the page receives from now on sounds like."""
    await page.evaluate(_RECORD)


async def recorded(page: DevTools) -> Samples:
    """Return what was kept, int16 at 48 kHz."""
    total, rate_hz = await page.evaluate(_JOIN)
    pieces = [
        np.frombuffer(base64.b64decode(await page.evaluate(_TAKE, at, at + _PIECE_SAMPLES)), np.int16)
        for at in range(0, int(total), _PIECE_SAMPLES)
    ]
    heard = np.concatenate([np.zeros(0, np.int16), *pieces])
    if rate_hz in {0, RATE_HZ}:
        return heard
    return np.asarray(soxr.resample(heard, rate_hz, RATE_HZ), np.int16)
