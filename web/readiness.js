// @ts-check
/** Asks the server whether it is ready until it is. */

const PAUSE_MS = 1_000;

export class ReadinessWatch {
  #signaling;
  #handle;
  #watching = false;

  /**
   * @param {import("./signaling.js").Signaling} signaling
   * @param {(readiness: import("./signaling.js").Readiness) => void} handle hears every answer
   */
  constructor(signaling, handle) {
    this.#signaling = signaling;
    this.#handle = handle;
  }

  /** Ask at once, then every second, until the server is ready. */
  async start() {
    if (this.#watching) return;
    this.#watching = true;
    for (;;) {
      const readiness = await this.#signaling.readiness();
      this.#handle(readiness);
      if (readiness.ready) break;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    this.#watching = false;
  }
}
