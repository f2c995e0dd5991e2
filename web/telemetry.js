// @ts-check
/** What the network does to the call, both ways: the browser's statistics and what the server tells of its side. */

/**
 * Values of one moment; NaN where nobody knows. `down` is what you hear, `up` is what the server hears of you.
 * @typedef {object} Reading
 * @property {number} rttMs media round trip, by RTCP or STUN
 * @property {number} channelRttMs control channel's round trip
 * @property {number} jitterDownMs
 * @property {number} jitterUpMs
 * @property {number} lossDownPct since the reading before
 * @property {number} lossUpPct
 * @property {number} bufferDownMs mean delay of the browser's jitter buffer since the reading before
 * @property {number} targetDownMs
 * @property {number} bufferUpMs
 * @property {number} targetUpMs
 * @property {number} concealedDownPct speech invented to fill gaps, since the reading before
 * @property {number} concealedUpPct
 * @property {string} repairDown repair in use, empty where unknown
 * @property {string} repairUp
 */

/** @typedef {Record<string, number>} Counters */

export class Telemetry {
  /** @type {Counters} */ #before = {};
  /** @type {Record<string, any>} */ #server = {};
  #serverLossPct = NaN;

  /** @param {Record<string, any>} message `call.stats`, or a later kind with the same fields and more */
  handleServerStats(message) {
    const { packets_received: received = 0, packets_lost: lost = 0 } = this.#server;
    const newLost = number(message.packets_lost) - lost;
    const newPackets = number(message.packets_received) - received + newLost;
    if (newPackets > 0) this.#serverLossPct = percent(newLost, newPackets);
    this.#server = { ...this.#server, ...message };
  }

  /**
   * @param {RTCPeerConnection} connection
   * @returns {Promise<Reading>}
   */
  async read(connection) {
    const report = await connection.getStats();
    /** @type {Record<string, any>} */ const found = {};
    for (const entry of report.values()) {
      if (entry.type === "candidate-pair" ? entry.nominated : entry.kind === "audio") found[entry.type] = entry;
    }
    return { ...this.#down(found["inbound-rtp"] ?? {}), ...this.#up(found["remote-inbound-rtp"] ?? {}), ...this.#rtt(found) };
  }

  /** @param {Record<string, any>} found */
  #rtt(found) {
    const seconds = found["remote-inbound-rtp"]?.roundTripTime ?? found["candidate-pair"]?.currentRoundTripTime;
    return { rttMs: 1000 * number(seconds), channelRttMs: number(this.#server.channel_rtt_ms) };
  }

  /** @param {Record<string, any>} inbound */
  #down(inbound) {
    const since = this.#delta(inbound);
    const emitted = since.jitterBufferEmittedCount;
    const samples = since.totalSamplesReceived;
    return {
      jitterDownMs: 1000 * number(inbound.jitter),
      lossDownPct: percent(Math.max(0, since.packetsLost), since.packetsLost + since.packetsReceived),
      bufferDownMs: (1000 * since.jitterBufferDelay) / emitted,
      targetDownMs: (1000 * since.jitterBufferTargetDelay) / emitted,
      concealedDownPct: percent(since.concealedSamples - since.silentConcealedSamples, samples),
      repairDown: String(this.#server.repair_down ?? ""),
    };
  }

  /** @param {Record<string, any>} remote the server's receiver reports, where it sends nothing better */
  #up(remote) {
    return {
      jitterUpMs: firstNumber(this.#server.jitter_ms, 1000 * number(remote.jitter)),
      lossUpPct: firstNumber(this.#serverLossPct, 100 * number(remote.fractionLost)),
      bufferUpMs: number(this.#server.buffer_ms),
      targetUpMs: number(this.#server.target_delay_ms),
      concealedUpPct: number(this.#server.concealed_pct),
      repairUp: String(this.#server.repair_up ?? ""),
    };
  }

  /**
   * @param {Record<string, any>} inbound
   * @returns {Counters} what the counters grew by since the reading before; NaN at the first
   */
  #delta(inbound) {
    /** @type {Counters} */ const grown = {};
    for (const name of COUNTERS) {
      grown[name] = number(inbound[name]) - number(this.#before[name]);
      this.#before[name] = inbound[name];
    }
    return grown;
  }
}

const COUNTERS = [
  "packetsReceived",
  "packetsLost",
  "jitterBufferDelay",
  "jitterBufferTargetDelay",
  "jitterBufferEmittedCount",
  "totalSamplesReceived",
  "concealedSamples",
  "silentConcealedSamples",
];

/** @param {unknown} value */
function number(value) {
  return typeof value === "number" ? value : NaN;
}

/** @param {unknown[]} values the first that is a number wins */
function firstNumber(...values) {
  return number(values.find((value) => typeof value === "number" && !Number.isNaN(value)));
}

/**
 * @param {number} part
 * @param {number} whole
 */
function percent(part, whole) {
  return whole > 0 ? (100 * part) / whole : NaN;
}
