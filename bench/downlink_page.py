"""A page for the benchmark: the product's own control modules around a bare call, and Chromium's own statistics."""

from __future__ import annotations

PAGE = """<!doctype html><meta charset="utf-8"><title>bench</title><audio id="voice" autoplay></audio>
<script type="module">
import { CallControl } from "./web/call_control.js";
import { offerWithNack } from "./web/adaptation.js";

window.decisions = [];
window.reports = 0;
window.startCall = async (plain) => {
  const connection = (window.connection = new RTCPeerConnection());
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
  connection.addTransceiver(microphone.getAudioTracks()[0], { direction: "sendrecv" });
  connection.ontrack = (event) => {
    const voice = document.getElementById("voice");
    voice.srcObject = new MediaStream([event.track]);
    void voice.play();
  };
  const channel = connection.createDataChannel("events");
  if (plain) await connection.setLocalDescription();
  else await offerWithNack(connection);
  await new Promise((resolve) => {
    const check = () => connection.iceGatheringState === "complete" && resolve();
    connection.onicegatheringstatechange = check;
    setTimeout(resolve, 300);
    check();
  });
  const { sdp, type } = connection.localDescription;
  const path = plain ? "plain" : "calls";
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sdp, type }),
  });
  const answer = await response.json();
  let control = null;
  if (!plain) {
    control = new CallControl(connection, channel, answer, {
      handleReport: () => (window.reports += 1),
      handleDecision: (decision) => window.decisions.push(decision),
      handleCarrier: (kind) => (window.carrier = kind),
      handleMessage: () => {},
    });
    channel.onmessage = (event) => control.handleText(JSON.parse(event.data));
  }
  await connection.setRemoteDescription({ type: answer.type, sdp: answer.sdp });
  return answer.call_id;
};
window.readStats = async () => {
  for (const entry of (await window.connection.getStats()).values())
    if (entry.type === "inbound-rtp" && entry.kind === "audio") return entry;
  return null;
};
window.ready = true;
</script>
"""
