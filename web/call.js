// @ts-check
/** One call: an RTCPeerConnection, its offer and answer, and how it ends. */

import { offerWithNack } from "./adaptation.js";
import { CallControl } from "./call_control.js";
import { parseMessage } from "./carriers.js";
import { CallFailure } from "./failures.js";
import { candidateFragment } from "./sdp.js";

/**
 * @typedef {import("./signaling.js").Signaling} Signaling
 * @typedef {{reason: string, failure: CallFailure | null}} Ending `failure` is null when either side hung up
 * @typedef {object} CallListener
 * @property {(voice: MediaStream) => void} handleVoice the peer's sound is there
 * @property {(message: Record<string, any>) => void} handleMessage a message of the data channel
 * @property {import("./call_control.js").ControlListener} control
 * @property {(steady: boolean) => void} handleSteadiness packets stopped, or flow again
 * @property {(ending: Ending) => void} handleEnd the connected call is over; said once
 */

/** The first host candidate comes within some 40 ms; Chromium takes 120 to say that there are no more. */
const GATHER_MS = 150;
/** ICE tries a pair for some seconds; past this nobody believes in it any more. */
const CONNECT_TIMEOUT_MS = 15_000;
/** The browser says "disconnected" after about 5 s of silence and "failed" after some 20 more, which is too long. */
const UNSTEADY_LIMIT_MS = 5_000;

export class Call {
  /** @type {RTCPeerConnection} */ connection;
  /** @type {CallControl | null} */ control = null;
  #signaling;
  #listener;
  #abort = new AbortController();
  #callId = "";
  #connected = false;
  #ended = false;
  #unsteadyTimer = 0;
  #lastReason = "";
  /** @type {RTCIceCandidate[]} */ #untold = [];

  /**
   * @param {Signaling} signaling
   * @param {CallListener} listener
   */
  constructor(signaling, listener) {
    this.#signaling = signaling;
    this.#listener = listener;
    this.connection = new RTCPeerConnection({ bundlePolicy: "max-bundle", rtcpMuxPolicy: "require" });
  }

  /**
   * Place the call and wait until media is connected.
   * @param {MediaStreamTrack} microphone
   * @returns {Promise<void>} throws CallFailure, or an AbortError after close()
   */
  async start(microphone) {
    const connection = this.connection;
    connection.ontrack = (event) => this.#listener.handleVoice(event.streams[0] ?? new MediaStream([event.track]));
    connection.onicecandidate = (event) => this.#handleCandidate(event.candidate);
    connection.addTransceiver(microphone, { direction: "sendrecv" });
    const channel = connection.createDataChannel("events");
    this.#watch(channel);
    try {
      const first = firstCandidate(connection, GATHER_MS);
      await offerWithNack(connection);
      await first;
      this.#untold = [];
      const offer = /** @type {RTCSessionDescription} */ (connection.localDescription);
      const answer = await this.#signaling.place(offer, this.#abort.signal);
      this.#callId = answer.call_id;
      this.#throwIfClosed();
      await connection.setRemoteDescription({ type: answer.type, sdp: answer.sdp });
      this.#throwIfClosed();
      this.control = new CallControl(connection, channel, answer, this.#listener.control);
      this.#tellCandidates();
      await this.#whenConnected();
    } catch (error) {
      this.close();
      throw error;
    }
    this.#connected = true;
    connection.onconnectionstatechange = () => this.#handleState(connection.connectionState);
    this.#handleState(connection.connectionState);
  }

  /** @param {MediaStreamTrack} microphone takes the place of the one in use */
  async replaceMicrophone(microphone) {
    const sender = this.connection.getSenders().find((each) => each.track?.kind === "audio");
    await sender?.replaceTrack(microphone);
  }

  /** Hang up, at any moment; the listener hears nothing after it. */
  close() {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#unsteadyTimer);
    this.#abort.abort();
    this.control?.close();
    this.connection.close();
    if (this.#callId) void this.#signaling.hangUp(this.#callId);
  }

  #throwIfClosed() {
    if (!this.#ended) return;
    if (this.#callId) void this.#signaling.hangUp(this.#callId); // the answer came after close()
    throw new DOMException("the call was given up", "AbortError");
  }

  /** @param {RTCDataChannel} channel */
  #watch(channel) {
    channel.onmessage = (event) => {
      const message = parseMessage(event.data);
      if (!message || this.control?.handleText(message)) return;
      if (message.type === "call.ended") this.#lastReason = message.reason ?? "ended";
      this.#listener.handleMessage(message);
      if (this.#lastReason && this.#connected) this.#end({ reason: this.#lastReason, failure: null });
    };
    channel.onclose = () => {
      if (this.#connected) this.#end({ reason: "", failure: new CallFailure("line_lost") });
    };
  }

  /** @param {RTCIceCandidate | null} candidate null when there will be no more */
  #handleCandidate(candidate) {
    if (candidate?.candidate) this.#untold.push(candidate);
    if (this.#callId) this.#tellCandidates();
  }

  #tellCandidates() {
    const { localDescription, iceGatheringState } = this.connection;
    if (!localDescription || this.#untold.length === 0) return;
    const fragment = candidateFragment(localDescription.sdp, this.#untold, iceGatheringState === "complete");
    this.#untold = [];
    void this.#signaling.trickle(this.#callId, fragment);
  }

  /** @returns {Promise<void>} */
  #whenConnected() {
    const connection = this.connection;
    return new Promise((resolve, reject) => {
      const check = () => {
        if (this.#ended) settle(() => reject(new DOMException("the call was given up", "AbortError")));
        else if (connection.connectionState === "connected") settle(resolve);
        else if (["failed", "closed"].includes(connection.connectionState)) fail();
      };
      const fail = () => settle(() => reject(new CallFailure("media_blocked")));
      const timer = setTimeout(fail, CONNECT_TIMEOUT_MS);
      /** @param {() => void} conclude */
      const settle = (conclude) => {
        clearTimeout(timer);
        connection.onconnectionstatechange = null;
        conclude();
      };
      connection.onconnectionstatechange = check;
      this.#abort.signal.addEventListener("abort", check, { once: true });
      check();
    });
  }

  /** @param {RTCPeerConnectionState} state */
  #handleState(state) {
    clearTimeout(this.#unsteadyTimer);
    const lost = () => this.#end({ reason: "", failure: new CallFailure("line_lost") });
    if (state === "failed" || state === "closed") lost();
    else if (state === "disconnected") this.#unsteadyTimer = window.setTimeout(lost, UNSTEADY_LIMIT_MS);
    if (!this.#ended) this.#listener.handleSteadiness(state === "connected");
  }

  /** @param {Ending} ending */
  #end(ending) {
    if (this.#ended) return;
    this.close();
    this.#listener.handleEnd(ending);
  }
}

/**
 * Wait for the first candidate; the others are trickled, and the server learns of them by their checks anyhow.
 * @param {RTCPeerConnection} connection
 * @param {number} limitMs
 * @returns {Promise<void>}
 */
function firstCandidate(connection, limitMs) {
  return new Promise((resolve) => {
    connection.addEventListener("icecandidate", () => resolve(), { once: true });
    setTimeout(resolve, limitMs);
  });
}
