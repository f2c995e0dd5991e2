// @ts-check
/** The call's centre: state, hint, problem, Call and Mute, and both levels. */

import { explain } from "./failures.js";
import { FLOOR_DBFS, LevelMeter } from "./meters.js";
import { element } from "./page.js";

/** @type {Record<string, [string, string]>} state line and hint, by phase or by the peer's state */
const LINES = {
  idle: ["Ready", "Press Call and speak."],
  asking: ["Your microphone?", "The browser asks whether this page may use it."],
  calling: ["Calling…", "Setting up a line to the server."],
  connecting: ["Connected", "The line is open."],
  listening: ["Listening", "Speak when you like."],
  thinking: ["Thinking", "An answer is on its way."],
  speaking: ["Speaking", "You may interrupt at any time."],
  unsteady: ["The line is unsteady", "Waiting for the network to come back."],
  redialing: ["Calling again…", "The line was lost. Hang up to stop."],
};

/** @type {Record<string, string>} what the call button says, by phase; Hang up where not listed */
const BUTTON = { idle: "Call", asking: "Cancel", calling: "Cancel" };

/** So long without a sound in the microphone, and a person is told. */
const SILENCE_LIMIT_MS = 8_000;
const SILENCE_NOTICE = "Your microphone gives no sound. Is it the right one, and switched on?";
const SILENT_BELOW_DBFS = FLOOR_DBFS - 5;

export class Stage {
  #stage = element("stage");
  #state = element("state");
  #hint = element("hint");
  #problem = element("problem");
  #microphoneLevel = element("microphone-level");
  #voiceLevel = element("voice-level");
  #microphone = new LevelMeter();
  #voice = new LevelMeter();
  /** @type {AudioContext | null} */ #audio = null;
  /** @type {"listening" | "thinking" | "speaking" | "connecting"} */ #peerState = "connecting";
  #phase = "idle";
  #frame = 0;
  #spokenTo = 0;
  #heardSound = false;
  #silentSince = 0;
  callButton = element("call-button", HTMLButtonElement);
  muteButton = element("mute-button", HTMLButtonElement);

  /** @param {import("./line.js").Phase} phase */
  handlePhase(phase) {
    this.#phase = phase;
    if (phase === "calling" || phase === "redialing") this.#peerState = "connecting";
    if (phase === "asking" || phase === "calling" || phase === "redialing") this.showProblem(null);
    this.callButton.textContent = BUTTON[phase] ?? "Hang up";
    this.callButton.classList.toggle("end", phase !== "idle");
    this.muteButton.hidden = phase === "idle" || phase === "asking";
    if (phase === "idle") this.setMuted(false);
    this.#draw();
  }

  /** @param {string} state of a `call.state` message */
  handlePeerState(state) {
    if (state !== "listening" && state !== "thinking" && state !== "speaking") return;
    this.#peerState = state;
    this.#draw();
  }

  /**
   * Say something in the idle state's place, such as why nobody can call yet.
   * @param {string} state
   * @param {string} hint
   */
  say(state, hint) {
    setText(this.#state, state);
    setText(this.#hint, hint);
  }

  /** @param {import("./failures.js").CallFailure | null} failure null takes the last one away */
  showProblem(failure) {
    this.#problem.replaceChildren();
    if (!failure) return;
    const { title, advice, detail } = explain(failure);
    this.#problem.append(paragraph("title", title), paragraph("advice", advice));
    if (detail) this.#problem.append(paragraph("detail", `The server says: ${detail}`));
  }

  /** @param {string} text something a person should know while the call goes on */
  showNotice(text) {
    this.#problem.replaceChildren(paragraph("advice", text));
  }

  /** The talk has moved on. */
  clearNotice() {
    if (!this.#problem.querySelector(".title")) this.showProblem(null);
  }

  /** @param {boolean} muted */
  setMuted(muted) {
    this.muteButton.setAttribute("aria-pressed", String(muted));
    this.#stage.toggleAttribute("data-muted", muted);
  }

  get muted() {
    return this.muteButton.getAttribute("aria-pressed") === "true";
  }

  /** Open the sound system for the meters; browsers ask for a press of a button before it. */
  openAudio() {
    this.#audio ??= new AudioContext();
    // Never awaited: without an output device Firefox leaves it pending, and a call needs no meters.
    this.#audio.resume().catch(() => undefined);
  }

  /** @param {MediaStream | null} stream */
  setMicrophone(stream) {
    if (this.#audio) this.#microphone.attach(this.#audio, stream);
    this.#heardSound = false;
    this.#silentSince = performance.now();
    cancelAnimationFrame(this.#frame);
    if (stream) this.#animate();
    else this.#drawLevels(0, 0);
  }

  /** @param {MediaStream | null} stream */
  setVoice(stream) {
    if (this.#audio) this.#voice.attach(this.#audio, stream);
  }

  #draw() {
    const key = this.#phase === "connected" ? this.#peerState : this.#phase;
    this.#stage.dataset.phase = key;
    const [state, hint] = LINES[key];
    this.say(state, hint);
    document.title = this.#phase === "idle" ? "Antiphon" : `${state} – Antiphon`;
  }

  #animate() {
    const muted = this.muted;
    const level = muted ? 0 : this.#microphone.read();
    this.#drawLevels(level, this.#voice.read());
    this.#watchSilence(muted);
    this.#frame = requestAnimationFrame(() => this.#animate());
  }

  /**
   * A microphone that never gave a sound is worth a word; one that fell silent only waits for its speaker.
   * @param {boolean} muted
   */
  #watchSilence(muted) {
    if (this.#heardSound) return;
    const now = performance.now();
    const listening = !muted && this.#phase === "connected" && this.#audio?.state === "running";
    if (!listening) this.#silentSince = now;
    else if (this.#microphone.readDbfs() > SILENT_BELOW_DBFS) {
      this.#heardSound = true;
      if (this.#problem.textContent === SILENCE_NOTICE) this.showProblem(null);
    } else if (now - this.#silentSince > SILENCE_LIMIT_MS && this.#problem.textContent === "") {
      this.#silentSince = now;
      this.showNotice(SILENCE_NOTICE);
    }
  }

  /**
   * @param {number} you 0..1
   * @param {number} peer 0..1
   */
  #drawLevels(you, peer) {
    this.#stage.style.setProperty("--you-level", you.toFixed(3));
    this.#stage.style.setProperty("--peer-level", peer.toFixed(3));
    const now = performance.now();
    if (now - this.#spokenTo < 500 && you + peer > 0) return; // what assistive technology reads need not flicker
    this.#spokenTo = now;
    this.#microphoneLevel.setAttribute("aria-valuenow", String(Math.round(100 * you)));
    this.#voiceLevel.setAttribute("aria-valuenow", String(Math.round(100 * peer)));
  }
}

/**
 * Set a text only where it differs, so that live regions speak once.
 * @param {HTMLElement} target
 * @param {string} text
 */
function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/**
 * @param {string} className
 * @param {string} text
 */
function paragraph(className, text) {
  const line = document.createElement("p");
  line.className = className;
  line.textContent = text;
  return line;
}
