// @ts-check
/** The page's end of the control channel: echoes, reports of what is received, and what the server asks for. */

import { openWebTransport, useDataChannel } from "./carriers.js";
import { EchoEstimator, echoReply } from "./echo.js";

/**
 * @typedef {object} ControlListener
 * @property {() => Promise<object | null>} makeReport what the page receives of the server's sound; null while nothing
 * @property {(message: Record<string, any>) => void} handleMessage anything but echoes and tokens
 * @property {(kind: "webtransport" | "data_channel") => void} handleCarrier what carries the channel now
 */

const ECHO_MS = 100;
const REPORT_MS = 200;
const REOPEN_MS = 250;
const SILENT_MS = 1_000;
/** So many tries in a row without success: QUIC does not get through here. */
const TRIES = 3;

export class Control {
  #listener;
  #echo = new EchoEstimator();
  /** @type {import("./carriers.js").Carrier | null} */ #carrier = null;
  #token = "";
  #heardAt = 0;
  #reportSeq = 0;
  #closed = false;
  /** @type {number[]} */ #timers = [];

  /** @param {ControlListener} listener */
  constructor(listener) {
    this.#listener = listener;
  }

  /**
   * Keep the channel open until close(): over WebTransport where it gets through, else, and meanwhile, over the call's
   * data channel.
   * @param {import("./signaling.js").ControlOffer | null} offer
   * @param {RTCDataChannel} channel
   */
  async open(offer, channel) {
    this.#timers = [
      window.setInterval(() => this.#sendEcho(), ECHO_MS),
      window.setInterval(() => void this.#report(), REPORT_MS),
    ];
    const fallback = useDataChannel(channel);
    this.#attach(fallback);
    if (!offer || !("WebTransport" in window)) return;
    this.#token = offer.token;
    for (let failures = 0; failures < TRIES && !this.#closed; ) {
      try {
        const carrier = await openWebTransport(offer, this.#token, (message) => this.#handle(message));
        if (this.#closed) return carrier.close();
        failures = 0;
        this.#attach(carrier);
        await carrier.closed;
        if (!this.#closed) this.#attach(fallback);
      } catch {
        failures += 1;
      }
      await new Promise((resolve) => setTimeout(resolve, REOPEN_MS * 2 ** failures));
    }
  }

  /**
   * Take in a message of the data channel.
   * @param {Record<string, any>} message
   * @returns {boolean} false where it is no business of the control channel
   */
  handleText(message) {
    if (!CONTROL_TYPES.has(message.type)) return false;
    if (message.type === "control.token" || this.#carrier?.kind === "data_channel") this.#handle(message);
    return true;
  }

  /**
   * Return a quantile of the round trip, ms; null while nothing is known.
   * @param {number} share 0..1
   */
  rttMs(share) {
    return this.#echo.quantile(share, performance.now());
  }

  close() {
    this.#closed = true;
    for (const timer of this.#timers) clearInterval(timer);
    this.#carrier?.close();
    this.#carrier = null;
  }

  /** @param {import("./carriers.js").Carrier} carrier */
  #attach(carrier) {
    this.#carrier = carrier;
    this.#heardAt = performance.now();
    this.#echo = new EchoEstimator(); // another carrier may take another path
    this.#listener.handleCarrier(carrier.kind);
  }

  #sendEcho() {
    const now = performance.now();
    this.#carrier?.sendDatagram(this.#echo.request(now));
    // The browser itself would wait half a minute for a path that has gone silent.
    if (this.#carrier?.kind === "webtransport" && now - this.#heardAt > SILENT_MS) this.#carrier.close();
  }

  async #report() {
    const carrier = this.#carrier;
    const report = carrier && (await this.#listener.makeReport());
    if (!report || carrier !== this.#carrier) return;
    const rtt = { rtt_p50_ms: this.rttMs(0.5), rtt_p90_ms: this.rttMs(0.9) };
    const at_us = Math.round(performance.now() * 1000);
    carrier.sendDatagram({ type: "report", seq: this.#reportSeq++, at_us, ...report, ...rtt });
  }

  /** @param {Record<string, any>} message */
  #handle(message) {
    const now = performance.now();
    this.#heardAt = now;
    switch (message.type) {
      case "echo.request":
        this.#carrier?.sendDatagram(echoReply(message, now));
        break;
      case "echo.reply":
        this.#echo.handleReply(message, now);
        break;
      case "control.accepted":
      case "control.token":
        this.#token = message.next_token;
        break;
      default:
        this.#listener.handleMessage(message);
    }
  }
}

const CONTROL_TYPES = new Set([
  "echo.request",
  "echo.reply",
  "report",
  "control.accepted",
  "control.token",
  "receiver.target",
  "sender.repair",
  "control.decision",
]);
