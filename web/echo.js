// @ts-check
/** Round-trip time from echoes with four timestamps (RFC 5905, section 8); all times in ms of performance.now(). */

/** As the server's: twenty echoes at 10 Hz, so a rise shows at once and a fall is through in two seconds. */
const WINDOW_MS = 2_000;
const TIMEOUT_MS = 3_000;

export class EchoEstimator {
  /** @type {Map<number, number>} when each open request was sent */ #open = new Map();
  /** @type {{at: number, rttMs: number}[]} */ #echoes = [];
  #seq = 0;

  /**
   * Return the next request, stamped.
   * @param {number} now
   */
  request(now) {
    for (const [seq, sentAt] of this.#open) if (now - sentAt > TIMEOUT_MS) this.#open.delete(seq);
    const seq = this.#seq++;
    this.#open.set(seq, now);
    return { type: "echo.request", seq, sent_us: toUs(now) };
  }

  /**
   * Take an answer in; one that answers nothing of ours, or claims a hold longer than its journey, is ignored.
   * @param {Record<string, any>} reply
   * @param {number} now
   */
  handleReply(reply, now) {
    const sentAt = this.#open.get(reply.seq);
    if (sentAt === undefined) return;
    this.#open.delete(reply.seq);
    const holdMs = (reply.replied_us - reply.received_us) / 1000;
    const rttMs = now - sentAt - holdMs;
    if (holdMs >= 0 && rttMs >= 0) this.#echoes.push({ at: now, rttMs });
  }

  /**
   * Return the given quantile of the last two seconds, ms; null while there is nothing.
   * @param {number} share 0..1
   * @param {number} now
   */
  quantile(share, now) {
    this.#echoes = this.#echoes.filter(({ at }) => now - at <= WINDOW_MS);
    const sorted = this.#echoes.map(({ rttMs }) => rttMs).sort((a, b) => a - b);
    return sorted.length > 0 ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : null;
  }
}

/**
 * @param {Record<string, any>} request of the other side
 * @param {number} now when it came, and, for the page answers at once, when the answer leaves
 */
export function echoReply(request, now) {
  return { type: "echo.reply", seq: request.seq, sent_us: request.sent_us, received_us: toUs(now), replied_us: toUs(now) };
}

/** @param {number} ms */
function toUs(ms) {
  return Math.round(ms * 1000);
}
