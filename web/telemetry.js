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
  /** @type {Record<string, any> | null} */ #readServer = null;

  /** @param {Record<string, any>} message `call.stats`, or `report` of the control channel, which comes oftener */
  handleServerStats(message) {
    if (message.type === "call.stats" && this.#server.type === "report") return;
    this.#server = message;
  }

  /**
   * @param {RTCPeerConnection} connection
   * @param {number | null} channelRttMs
   * @returns {Promise<Reading>}
   */
  async read(connection, channelRttMs) {
    const report = await connection.getStats();
    /** @type {Record<string, any>} */ const found = {};
    for (const entry of report.values()) {
      if (entry.type === "candidate-pair" ? entry.nominated : entry.kind === "audio") found[entry.type] = entry;
    }
    const rttS = found["remote-inbound-rtp"]?.roundTripTime ?? found["candidate-pair"]?.currentRoundTripTime;
    return {
      rttMs: 1000 * number(rttS),
      channelRttMs: number(channelRttMs),
      ...this.#down(found["inbound-rtp"] ?? {}),
      ...this.#up(found["remote-inbound-rtp"] ?? {}),
    };
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
      repairDown: String(this.#server.repair_sent ?? ""),
    };
  }

  /** @param {Record<string, any>} remote the server's receiver reports, where it says nothing better itself */
  #up(remote) {
    const server = this.#server;
    const before = this.#readServer ?? server;
    this.#readServer = server;
    const lost = number(server.packets_lost) - number(before.packets_lost);
    const received = number(server.packets_received) - number(before.packets_received);
    const concealed = number(server.samples_concealed) - number(before.samples_concealed);
    return {
      jitterUpMs: firstNumber(server.jitter_ms, 1000 * number(remote.jitter)),
      lossUpPct: firstNumber(percent(lost, lost + received), 100 * number(remote.fractionLost)),
      bufferUpMs: number(server.level_ms),
      targetUpMs: number(server.target_ms),
      concealedUpPct: percent(concealed, number(server.samples_total) - number(before.samples_total)),
      repairUp: String(server.repair ?? ""),
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
