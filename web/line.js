// @ts-check
/** The person's line: microphone and calls over time. It calls, calls again when the line breaks, and hangs up. */

import { Call } from "./call.js";
import { CallFailure, asFailure } from "./failures.js";
import { openMicrophone } from "./microphone.js";

/**
 * @typedef {"idle" | "asking" | "calling" | "connected" | "unsteady" | "redialing"} Phase
 * @typedef {object} LineListener
 * @property {(phase: Phase) => void} handlePhase
 * @property {(microphone: MediaStream | null) => void} handleMicrophone
 * @property {(voice: MediaStream | null) => void} handleVoice
 * @property {(message: Record<string, any>) => void} handleMessage
 * @property {import("./call_control.js").ControlListener} control
 * @property {(failure: CallFailure) => void} handleFailure the line is idle again because of it
 * @property {(reason: string) => void} handleGoodbye the peer ended the call
 */

/** Pauses before each try to call again, in ms: quick enough to feel like a hiccup, then patient. */
const REDIAL_PAUSES_MS = [500, 2_000, 4_000, 8_000];
const WORTH_ANOTHER_TRY = new Set(["server_unreachable", "server_not_ready", "server_busy", "no_answer", "media_blocked"]);

export class Line {
  /** @type {Phase} */ phase = "idle";
  /** @type {Call | null} */ call = null;
  /** @type {MediaStream | null} */ #microphone = null;
  #signaling;
  #listener;
  #muted = false;
  /** Counts presses of Call and Hang up, so that what was begun before one knows that it is stale. */
  #attempt = 0;

  /**
   * @param {import("./signaling.js").Signaling} signaling
   * @param {LineListener} listener
   */
  constructor(signaling, listener) {
    this.#signaling = signaling;
    this.#listener = listener;
  }

  /**
   * Open the microphone and call; every outcome goes to the listener.
   * @param {string} microphoneId empty for the default
   */
  async dial(microphoneId) {
    if (this.phase !== "idle") return;
    const attempt = ++this.#attempt;
    this.#enter("asking");
    try {
      const microphone = await openMicrophone(microphoneId);
      if (attempt !== this.#attempt) return stop(microphone);
      this.#useMicrophone(microphone);
      this.#enter("calling");
      await this.#connect(attempt);
    } catch (error) {
      if (attempt === this.#attempt) this.#giveUp(asFailure(error, "call_refused"));
    }
  }

  hangUp() {
    this.#release();
  }

  /** @param {boolean} muted */
  setMuted(muted) {
    this.#muted = muted;
    for (const track of this.#microphone?.getAudioTracks() ?? []) track.enabled = !muted;
  }

  /**
   * Change the microphone, in mid-call too.
   * @param {string} microphoneId
   */
  async changeMicrophone(microphoneId) {
    if (!this.#microphone) return;
    const attempt = this.#attempt;
    const microphone = await openMicrophone(microphoneId);
    if (attempt !== this.#attempt) return stop(microphone);
    stop(this.#microphone);
    this.#useMicrophone(microphone);
    await this.call?.replaceMicrophone(microphone.getAudioTracks()[0]);
  }

  /** @param {number} attempt */
  async #connect(attempt) {
    const call = new Call(this.#signaling, {
      handleVoice: (voice) => this.#listener.handleVoice(voice),
      handleMessage: (message) => this.#listener.handleMessage(message),
      control: this.#listener.control,
      handleSteadiness: (steady) => this.#enter(steady ? "connected" : "unsteady"),
      handleEnd: (ending) => this.#handleEnd(attempt, ending),
    });
    this.call = call;
    await call.start(/** @type {MediaStream} */ (this.#microphone).getAudioTracks()[0]);
  }

  /**
   * @param {number} attempt
   * @param {import("./call.js").Ending} ending
   */
  #handleEnd(attempt, { reason, failure }) {
    this.call = null;
    this.#listener.handleVoice(null);
    if (attempt !== this.#attempt) return;
    if (failure) void this.#redial(attempt, failure);
    else {
      this.hangUp();
      this.#listener.handleGoodbye(reason);
    }
  }

  /**
   * @param {number} attempt
   * @param {CallFailure} lost
   */
  async #redial(attempt, lost) {
    let failure = lost;
    this.#enter("redialing");
    for (const pauseMs of REDIAL_PAUSES_MS) {
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
      if (attempt !== this.#attempt) return;
      try {
        return await this.#connect(attempt);
      } catch (error) {
        if (attempt !== this.#attempt) return;
        failure = asFailure(error, "call_refused");
        if (!WORTH_ANOTHER_TRY.has(failure.code)) break;
      }
    }
    this.#giveUp(failure.code === "server_unreachable" ? new CallFailure("server_gone") : failure);
  }

  /** @param {CallFailure} failure */
  #giveUp(failure) {
    this.#release();
    this.#listener.handleFailure(failure);
  }

  #release() {
    this.#attempt += 1;
    this.call?.close();
    this.call = null;
    if (this.#microphone) stop(this.#microphone);
    this.#microphone = null;
    this.#muted = false; // as the button says of the next call
    this.#listener.handleMicrophone(null);
    this.#listener.handleVoice(null);
    this.#enter("idle");
  }

  /** @param {MediaStream} microphone */
  #useMicrophone(microphone) {
    this.#microphone = microphone;
    this.setMuted(this.#muted);
    // Unplugged in mid-call: the default one takes over, and with none left the call says so.
    microphone.getAudioTracks()[0].onended = () => {
      this.changeMicrophone("").catch((error) => this.#giveUp(asFailure(error, "microphone_failed")));
    };
    this.#listener.handleMicrophone(microphone);
  }

  /** @param {Phase} phase */
  #enter(phase) {
    if (phase === this.phase) return;
    this.phase = phase;
    this.#listener.handlePhase(phase);
  }
}

/** @param {MediaStream} stream */
function stop(stream) {
  for (const track of stream.getTracks()) {
    track.onended = null;
    track.stop();
  }
}
