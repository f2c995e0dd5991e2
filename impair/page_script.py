"""What is put into a page before its own scripts: a microphone that speaks when told, and ears on every remote track.

It works for any page that uses getUserMedia and RTCPeerConnection; nothing of the page itself is touched.
"""

from __future__ import annotations

PAGE_SCRIPT = """
(() => {
  const state = window.impair = {peers: [], messages: [], pieces: [], began: null, speaking: null, level: 0};
  const Peer = window.RTCPeerConnection;
  let context = null, microphone = null;
  const audio = () => {
    if (context === null) {
      context = new AudioContext({sampleRate: 48000});
      microphone = context.createMediaStreamDestination();
      const hum = context.createConstantSource();
      const faint = context.createGain();
      faint.gain.value = 0.0001;
      hum.connect(faint).connect(microphone);
      hum.start();
    }
    return context;
  };
  navigator.mediaDevices.getUserMedia = async () => {
    await audio().resume();
    return microphone.stream.clone();
  };
  const hear = (channel) => channel.addEventListener('message', (event) => {
    if (typeof event.data === 'string') state.messages.push([performance.now(), event.data]);
  });
  const listen = (track) => {
    if (track.kind !== 'audio') return;
    audio();
    const stream = new MediaStream([track]);
    const player = new Audio();  // without a sink a remote track stands still
    player.muted = true;
    player.srcObject = stream;
    player.play().catch(() => {});
    state.player = player;
    const ears = context.createScriptProcessor(1024, 1, 1);
    ears.onaudioprocess = (event) => {
      const samples = event.inputBuffer.getChannelData(0);
      const now = performance.now();
      if (state.began === null) state.began = now - 1000 * samples.length / 48000;
      const piece = new Int16Array(samples.length);
      let sum = 0;
      for (let n = 0; n < samples.length; n++) {
        piece[n] = Math.max(-32768, Math.min(32767, samples[n] * 32767));
        sum += samples[n] * samples[n];
      }
      state.pieces.push(piece);
      if (32767 * Math.sqrt(sum / samples.length) > 100) {
        if (state.audibleAt === undefined || now - state.audibleAt > 400) state.onsetAt = now;
        state.audibleAt = now;
      }
    };
    context.createMediaStreamSource(stream).connect(ears);
    ears.connect(context.destination);
  };
  window.RTCPeerConnection = class extends Peer {
    constructor(...settings) {
      super(...settings);
      state.peers.push(this);
      this.addEventListener('track', (event) => listen(event.track));
      this.addEventListener('datachannel', (event) => hear(event.channel));
      this.addEventListener('connectionstatechange', () => {
        if (this.connectionState === 'connected') state.connectedAt ??= performance.now();
      });
    }
    createDataChannel(...settings) {
      const channel = super.createDataChannel(...settings);
      hear(channel);
      return channel;
    }
  };
  state.say = (base64) => {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const samples = new Int16Array(bytes.buffer);
    const buffer = audio().createBuffer(1, samples.length, 48000);
    const out = buffer.getChannelData(0);
    for (let n = 0; n < samples.length; n++) out[n] = samples[n] / 32768;
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(microphone);
    source.start();
    return performance.now() + 1000 * context.baseLatency;
  };
  state.stats = async () => {
    const out = {};
    const peer = state.peers.findLast((one) => one.connectionState !== 'closed');
    if (!peer) return out;
    out.state = peer.connectionState;
    for (const report of (await peer.getStats()).values()) {
      if (report.type === 'inbound-rtp' && report.kind === 'audio') Object.assign(out, {inbound: {...report}});
      if (report.type === 'candidate-pair' && report.nominated) out.rtt = report.currentRoundTripTime;
    }
    return out;
  };
  state.recorded = () => {
    let total = 0;
    for (const piece of state.pieces) total += piece.length;
    const all = new Int16Array(total);
    let at = 0;
    for (const piece of state.pieces) { all.set(piece, at); at += piece.length; }
    const bytes = new Uint8Array(all.buffer);
    let text = '';
    for (let n = 0; n < bytes.length; n += 32768) text += String.fromCharCode(...bytes.subarray(n, n + 32768));
    return btoa(text);
  };
})();
"""
"""Sample rate 48 kHz throughout; times are the page's performance.now(), in ms."""
