// @ts-check
/** The control side of one call in the page: the channel, what it reports, and what it may change. */

import { Adaptation } from "./adaptation.js";
import { Control } from "./control.js";

/**
 * @typedef {object} ControlListener
 * @property {(report: Record<string, any>) => void} handleReport what the server receives of us
 * @property {(decision: Record<string, any>) => void} handleDecision an output of the server's controller changed, and why
 * @property {(kind: "webtransport" | "data_channel") => void} handleCarrier what carries the channel now
 */

export class CallControl {
  #connection;
  #listener;
  #control;
  #adaptation;
  #before = { delay: 0, target: 0, emitted: 0 };

  /**
   * @param {RTCPeerConnection} connection
   * @param {RTCDataChannel} channel
   * @param {import("./signaling.js").Answer} answer
   * @param {ControlListener} listener
   */
  constructor(connection, channel, answer, listener) {
    this.#connection = connection;
    this.#listener = listener;
    this.#adaptation = new Adaptation(connection, { type: answer.type, sdp: answer.sdp });
    this.#control = new Control({
      makeReport: () => this.#makeReport(),
      handleMessage: (message) => this.#handle(message),
      handleCarrier: (kind) => listener.handleCarrier(kind),
    });
    void this.#control.open(answer.control, channel);
  }

  /**
   * Take in a message of the data channel; false where it is a conversation event.
   * @param {Record<string, any>} message
   */
  handleText(message) {
    return this.#control.handleText(message);
  }

  /** Median round trip of the channel, ms; null while unknown. */
  get rttMs() {
    return this.#control.rttMs(0.5);
  }

  close() {
    this.#control.close();
  }

  /** @param {Record<string, any>} message */
  #handle(message) {
    switch (message.type) {
      case "receiver.target":
        this.#adaptation.setReceiverTarget(message.target_ms ?? null);
        break;
      case "sender.repair":
        void this.#adaptation.setSenderRepair(message);
        break;
      case "report":
        this.#listener.handleReport(message);
        break;
      case "control.decision":
        this.#listener.handleDecision(message);
        break;
      default: // conversation events come over the data channel as well, and are taken from there
    }
  }

  /** @returns {Promise<object | null>} a `report` of transport/control_messages.py, without its stamps */
  async #makeReport() {
    const receiver = this.#connection.getReceivers().find((each) => each.track.kind === "audio");
    const stats = receiver && [...(await receiver.getStats()).values()].find((each) => each.type === "inbound-rtp");
    if (!stats?.packetsReceived) return null;
    const since = {
      delay: (stats.jitterBufferDelay ?? 0) - this.#before.delay,
      target: (stats.jitterBufferTargetDelay ?? 0) - this.#before.target,
      emitted: (stats.jitterBufferEmittedCount ?? 0) - this.#before.emitted,
    };
    this.#before = {
      delay: stats.jitterBufferDelay ?? 0,
      target: stats.jitterBufferTargetDelay ?? 0,
      emitted: stats.jitterBufferEmittedCount ?? 0,
    };
    return {
      packets_received: stats.packetsReceived,
      packets_lost: Math.max(0, stats.packetsLost ?? 0),
      packets_repaired: stats.fecPacketsReceived ?? 0,
      packets_discarded: stats.packetsDiscarded ?? 0,
      jitter_ms: 1000 * (stats.jitter ?? 0),
      samples_concealed: stats.concealedSamples ?? 0,
      samples_total: stats.totalSamplesReceived ?? 0,
      target_ms: since.emitted > 0 ? (1000 * since.target) / since.emitted : 0,
      level_ms: since.emitted > 0 ? (1000 * since.delay) / since.emitted : 0,
      repair_sent: this.#adaptation.red ? "red(1,)" : "none",
      red_offsets: this.#adaptation.canRed ? [1] : [], // browsers copy the packet before and no other
    };
  }
}
