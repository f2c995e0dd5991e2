// @ts-check
/** The Network panel: reads the statistics twice a second and draws them. */

import { element } from "./page.js";
import { PlotBoard } from "./plots.js";
import { Telemetry } from "./telemetry.js";

const PERIOD_MS = 500;

export class NetworkPanel {
  #board = new PlotBoard(element("plots"));
  #summary = element("network-summary");
  #repair = element("repair");
  #telemetry = new Telemetry();
  /** @type {RTCPeerConnection | null} */ #read = null;
  #timer = 0;

  /** @param {() => RTCPeerConnection | null} connection of the call that is on; null between two calls */
  start(connection) {
    if (this.#timer) return;
    this.#board.clear();
    this.#timer = window.setInterval(() => void this.#refresh(connection()), PERIOD_MS);
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = 0;
  }

  /** @param {Record<string, any>} message */
  handleServerStats(message) {
    this.#telemetry.handleServerStats(message);
  }

  /** @param {RTCPeerConnection | null} connection */
  async #refresh(connection) {
    if (!connection || connection.connectionState === "closed") return;
    if (connection !== this.#read) this.#telemetry = new Telemetry(); // counters start at zero with each connection
    this.#read = connection;
    const reading = await this.#telemetry.read(connection);
    this.#board.add(reading);
    this.#summary.textContent = summaryOf(reading);
    const repairs = [["to you", reading.repairDown], ["from you", reading.repairUp]].filter(([, repair]) => repair);
    this.#repair.textContent = repairs.map(([way, repair]) => `Repair ${way}: ${repair}`).join(" · ");
  }
}

/** @param {import("./telemetry.js").Reading} reading */
function summaryOf({ rttMs, lossDownPct, bufferDownMs }) {
  const parts = [];
  if (!Number.isNaN(rttMs)) parts.push(`${rttMs.toFixed(0)} ms round trip`);
  if (!Number.isNaN(lossDownPct)) parts.push(`${lossDownPct.toFixed(1)} % lost`);
  if (!Number.isNaN(bufferDownMs)) parts.push(`${bufferDownMs.toFixed(0)} ms buffered`);
  return parts.join(" · ");
}
