// @ts-check
/** The Network panel: reads the statistics twice a second, draws them, and tells what the controller does about them. */

import { element } from "./page.js";
import { PlotBoard } from "./plots.js";
import { Telemetry } from "./telemetry.js";

const PERIOD_MS = 500;
const DECISIONS_SHOWN = 5;

/** @type {Record<string, string>} outputs of the server's controller, as a person may read them */
const OUTPUTS = {
  plan: "Repair to you",
  ask: "Repair from you",
  expected_loss_pct: "Expected loss to you",
  bitrate_bps: "Bitrate to you",
  receiver_target_ms: "Your buffer's target",
};
/** @type {Record<string, string>} */
const UNITS = { expected_loss_pct: " %", bitrate_bps: " bit/s", receiver_target_ms: " ms" };

const CARRIERS = { webtransport: "Control channel over QUIC", data_channel: "Control channel over the data channel" };

export class NetworkPanel {
  #board = new PlotBoard(element("plots"));
  #summary = element("network-summary");
  #repair = element("repair");
  #decisions = element("decisions");
  #telemetry = new Telemetry();
  /** @type {RTCPeerConnection | null} */ #read = null;
  #carrier = "";
  #timer = 0;

  /** @param {() => import("./call.js").Call | null} call that is on; null between two calls */
  start(call) {
    if (this.#timer) return;
    this.#board.clear();
    this.#decisions.replaceChildren();
    this.#timer = window.setInterval(() => void this.#refresh(call()), PERIOD_MS);
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = 0;
  }

  /** @param {Record<string, any>} message of type `call.stats` */
  handleServerStats = (message) => this.#telemetry.handleServerStats(message);

  /** @param {Record<string, any>} report */
  handleReport = (report) => this.#telemetry.handleServerStats(report);

  /** @param {"webtransport" | "data_channel"} kind */
  handleCarrier = (kind) => {
    this.#carrier = CARRIERS[kind];
  };

  /** @param {Record<string, any>} decision */
  handleDecision = ({ output, before, after, reason }) => {
    const item = document.createElement("li");
    const [from, to] = [before, after].map((/** @type {string} */ value) => readable(value) + valueUnit(output, value));
    item.textContent = `${OUTPUTS[output] ?? output}: ${from} → ${to}${reason ? ` (${readable(reason)})` : ""}`;
    this.#decisions.prepend(item);
    while (this.#decisions.children.length > DECISIONS_SHOWN) this.#decisions.lastElementChild?.remove();
  };

  /** @param {import("./call.js").Call | null} call */
  async #refresh(call) {
    const connection = call?.connection;
    if (!connection || connection.connectionState === "closed") return;
    if (connection !== this.#read) this.#telemetry = new Telemetry(); // counters start at zero with each connection
    this.#read = connection;
    const reading = await this.#telemetry.read(connection, call.control?.rttMs ?? null);
    this.#board.add(reading);
    this.#summary.textContent = summaryOf(reading);
    this.#repair.textContent = [
      this.#carrier,
      reading.repairDown && `repair to you: ${readable(reading.repairDown)}`,
      reading.repairUp && `repair from you: ${readable(reading.repairUp)}`,
    ].filter(Boolean).join(" · ");
  }
}

/** @param {import("./telemetry.js").Reading} reading */
function summaryOf({ rttMs, channelRttMs, lossDownPct, bufferDownMs }) {
  const parts = [];
  const roundTripMs = Number.isNaN(channelRttMs) ? rttMs : channelRttMs;
  if (!Number.isNaN(roundTripMs)) parts.push(`${roundTripMs.toFixed(0)} ms round trip`);
  if (!Number.isNaN(lossDownPct)) parts.push(`${lossDownPct.toFixed(1)} % lost`);
  if (!Number.isNaN(bufferDownMs)) parts.push(`${bufferDownMs.toFixed(0)} ms buffered`);
  return parts.join(" · ");
}

/**
 * @param {string} output
 * @param {string} value
 */
function valueUnit(output, value) {
  return /^[\d.]+$/.test(value) ? (UNITS[output] ?? "") : "";
}

/**
 * Write repair plans such as `fec+red(1, 2)+nack` in words.
 * @param {string} text
 */
function readable(text) {
  return (text === "None" || !text ? "none" : text)
    .replace(/red\(([\d, ]*?),?\)/g, (_, offsets) => `copies at ${offsets}`)
    .replaceAll(/\bfec\b/g, "FEC")
    .replaceAll(/\bnack\b/g, "resending")
    .replaceAll("+", " + ");
}
