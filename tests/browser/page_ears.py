"""JavaScript that the tests run in the page: the clock of the microphone, a microphone made of a file, a recorder."""

from __future__ import annotations

import base64
from pathlib import Path

WATCH_MICROPHONE = """() => {
  window.microphoneAt = 0;
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (constraints) => {
    const stream = await open(constraints);
    window.microphoneAt = performance.now();
    return stream;
  };
}"""

RECORD_VOICE = """(() => {
  const recorder = new MediaRecorder(document.getElementById("voice").srcObject);
  window.recording = { at: performance.now(), chunks: [], recorder };
  recorder.ondataavailable = (event) => recording.chunks.push(event.data);
  recorder.start(500);
})()"""

TAKE_RECORDING = """(async () => {
  const stopped = new Promise((resolve) => (recording.recorder.onstop = resolve));
  recording.recorder.stop();
  await stopped;
  const bytes = new Uint8Array(await new Blob(recording.chunks).arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return [btoa(text), recording.at - window.microphoneAt];
})()"""

SNAPSHOT = """(() => {
  const said = (side) => [...document.querySelectorAll(`#log .${side} .words`)].map((words) => {
    const copy = words.cloneNode(true);
    copy.querySelector(".unheard")?.remove();
    return copy.textContent.trim();
  });
  return {
    state: document.getElementById("state").textContent,
    problem: document.getElementById("problem").textContent,
    user: said("user"),
    peer: said("peer"),
    growing: document.getElementById("drafts").textContent,
    voice: document.getElementById("voice").srcObject !== null,
    ms: window.microphoneAt ? performance.now() - window.microphoneAt : 0,
  };
})()"""


_MICROPHONE_OF_FILE = """() => {
  window.microphoneAt = 0;
  const bytes = Uint8Array.from(atob("SOUND"), (letter) => letter.charCodeAt(0));
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (constraints) => {
    await open(constraints);
    const context = new AudioContext({ sampleRate: 48000 });
    const source = context.createBufferSource();
    source.buffer = await context.decodeAudioData(bytes.buffer.slice(0));
    const output = context.createMediaStreamDestination();
    source.connect(output);
    await context.resume();
    source.start();
    window.microphoneAt = performance.now();
    return output.stream;
  };
}"""


def microphone_from_file(path: Path) -> str:
    """Return a function that gives the page `path` (WAV) as its microphone, played once from when it is opened."""
    return _MICROPHONE_OF_FILE.replace("SOUND", base64.b64encode(path.read_bytes()).decode())
