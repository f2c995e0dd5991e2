// @ts-check
/** What the server's controller asks of the browser: more or less buffer, copies in what is sent, a bitrate. */

import { askForNack, preferRed } from "./sdp.js";

export class Adaptation {
  #connection;
  #answer;
  #red = false;
  /** Renegotiations follow one another. */
  #turn = Promise.resolve();

  /**
   * @param {RTCPeerConnection} connection
   * @param {RTCSessionDescriptionInit} answer the server's, as it came
   */
  constructor(connection, answer) {
    this.#connection = connection;
    this.#answer = answer;
  }

  /** Whether RED copies ride along in what the browser sends. */
  get red() {
    return this.#red;
  }

  /** Whether they could. */
  get canRed() {
    return preferRed(this.#answer.sdp ?? "", true) !== null;
  }

  /** @param {number | null} targetMs least delay of the browser's buffer; null leaves it to the browser */
  setReceiverTarget(targetMs) {
    for (const receiver of this.#connection.getReceivers()) {
      if (receiver.track.kind === "audio" && "jitterBufferTarget" in receiver) receiver.jitterBufferTarget = targetMs;
    }
  }

  /**
   * Send with RED or without, and with no more than a bitrate; what the browser cannot do it leaves.
   * @param {Record<string, any>} wish a `sender.repair` message
   */
  async setSenderRepair(wish) {
    const red = Array.isArray(wish.red_offsets) && wish.red_offsets.length > 0;
    this.#turn = this.#turn.then(() => this.#useRed(red)).catch(() => undefined);
    await this.#turn;
    if (typeof wish.bitrate_bps === "number") await this.#setBitrate(wish.bitrate_bps).catch(() => undefined);
  }

  /**
   * A browser sends with the first codec of the answer, so the page answers itself anew; the server needs not know.
   * @param {boolean} red
   */
  async #useRed(red) {
    const sdp = preferRed(this.#answer.sdp ?? "", red);
    if (red === this.#red || sdp === null || this.#connection.signalingState !== "stable") return;
    await offerWithNack(this.#connection);
    await this.#connection.setRemoteDescription({ type: "answer", sdp });
    this.#red = red;
  }

  /** @param {number} bitrateBps */
  async #setBitrate(bitrateBps) {
    const sender = this.#connection.getSenders().find((each) => each.track?.kind === "audio");
    const parameters = sender?.getParameters();
    if (!sender || !parameters?.encodings?.[0]) return;
    parameters.encodings[0].maxBitrate = bitrateBps;
    await sender.setParameters(parameters);
  }
}

/**
 * Make and set an offer that asks for answers to NACKs about audio, which Chromium honours but never asks for itself.
 * @param {RTCPeerConnection} connection
 */
export async function offerWithNack(connection) {
  const offer = await connection.createOffer();
  try {
    await connection.setLocalDescription({ type: "offer", sdp: askForNack(offer.sdp ?? "") });
  } catch {
    await connection.setLocalDescription(offer); // a browser that wants its own words back
  }
}
