// @ts-check
/** Puts the page together: the line below, what a person sees and presses above. */

import { DeviceChoice } from "./devices.js";
import { CallFailure, asFailure } from "./failures.js";
import { Line } from "./line.js";
import { requireCallSupport } from "./microphone.js";
import { Minutes, offerDownload } from "./minutes.js";
import { NetworkPanel } from "./network_panel.js";
import { element } from "./page.js";
import { ReadinessWatch } from "./readiness.js";
import { Signaling } from "./signaling.js";
import { Stage } from "./stage.js";
import { askForToken } from "./token_dialog.js";
import { Transcript } from "./transcript.js";
import { keepScreenOn } from "./wake_lock.js";

const signaling = new Signaling(document.baseURI);
const stage = new Stage();
const transcript = new Transcript(element("transcript"), element("log"), element("drafts"));
const minutes = new Minutes();
const network = new NetworkPanel();
const voice = element("voice", HTMLAudioElement);

const line = new Line(signaling, {
  handlePhase(phase) {
    stage.handlePhase(phase);
    keepScreenOn(phase !== "idle");
    if (phase === "calling" || phase === "redialing") {
      transcript.beginCall();
      minutes.beginCall(new Date());
    }
    if (phase === "connected") network.start(() => line.call);
    if (phase === "idle") {
      network.stop();
      transcript.finish();
    }
  },
  handleMicrophone(microphone) {
    stage.setMicrophone(microphone);
    if (microphone) void devices.refresh();
  },
  handleVoice(stream) {
    voice.srcObject = stream;
    stage.setVoice(stream);
  },
  handleMessage,
  control: network,
  handleFailure(failure) {
    void handleFailure(failure);
  },
  handleGoodbye(reason) {
    stage.say("Call ended", reason ? `${reason[0].toUpperCase()}${reason.slice(1)}.` : "");
  },
});

const devices = new DeviceChoice((microphoneId) => {
  line.changeMicrophone(microphoneId).catch((error) => stage.showProblem(asFailure(error, "microphone_failed")));
});

const readiness = new ReadinessWatch(signaling, ({ ready, reachable, reason, recorded }) => {
  if (ready) element("recorded").hidden = !recorded;
  stage.callButton.setAttribute("aria-disabled", String(!ready && line.phase === "idle"));
  if (line.phase !== "idle") return;
  if (ready) stage.handlePhase("idle");
  else if (reachable) stage.say("Getting ready", reason || "The server is loading its models.");
  else stage.say("No server", "The server does not respond. This page keeps trying.");
});

/** @param {Record<string, any>} message */
function handleMessage(message) {
  transcript.handleMessage(message);
  minutes.handleMessage(message);
  if (message.type === "call.recorded") element("recorded").hidden = false;
  if (message.type === "call.state") stage.handlePeerState(message.state);
  else if (message.type === "call.stats") network.handleServerStats(message);
  else if (message.type === "input_audio_buffer.speech_started") stage.clearNotice();
  else if (message.type === "error" && !message.fatal) stage.showNotice(String(message.message ?? message.code));
}

async function dial() {
  stage.openAudio();
  await line.dial(devices.microphone.value);
}

/** @param {CallFailure} failure */
async function handleFailure(failure) {
  if (failure.code === "token_needed" || failure.code === "token_wrong") {
    if (failure.code === "token_wrong") stage.showProblem(failure);
    signaling.setToken("");
    const token = await askForToken();
    if (!token) return stage.showProblem(failure);
    signaling.setToken(token);
    return dial();
  }
  stage.showProblem(failure);
  stage.say("Not connected", "Press Call to try again.");
  if (["server_unreachable", "server_not_ready", "server_gone"].includes(failure.code)) void readiness.start();
}

stage.callButton.addEventListener("click", () => {
  if (stage.callButton.getAttribute("aria-disabled") === "true") return;
  if (line.phase === "idle") void dial();
  else {
    line.hangUp();
    stage.say("Call ended", "Press Call to talk again.");
  }
});

stage.muteButton.addEventListener("click", () => {
  stage.setMuted(!stage.muted);
  line.setMuted(stage.muted);
});

minutes.onChange = () => (element("save").hidden = minutes.isEmpty);
element("save-text").addEventListener("click", () => offerDownload(minutes.asText(), "text/plain", "txt"));
element("save-json").addEventListener("click", () => offerDownload(minutes.asJson(), "application/json", "json"));

window.addEventListener("pagehide", () => line.hangUp());

element("network-details", HTMLDetailsElement).open = matchMedia("(min-width: 781px)").matches;

try {
  requireCallSupport();
  void readiness.start();
} catch (error) {
  stage.say("Not here", "");
  stage.showProblem(asFailure(error, "unsupported"));
  stage.callButton.setAttribute("aria-disabled", "true");
}
