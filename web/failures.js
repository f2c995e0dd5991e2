// @ts-check
/** What can go wrong in a call, and how a person is told. */

/**
 * @typedef {"insecure_context" | "unsupported" | "microphone_missing" | "microphone_denied" | "microphone_busy"
 *   | "microphone_failed" | "server_unreachable" | "server_not_ready" | "token_needed" | "token_wrong" | "server_busy"
 *   | "call_refused" | "no_answer" | "media_blocked" | "line_lost" | "server_gone"} FailureCode
 */

/** A call that could not be made or kept; `detail` is the other side's own words, or empty. */
export class CallFailure extends Error {
  /**
   * @param {FailureCode} code
   * @param {string} [detail]
   */
  constructor(code, detail = "") {
    super(detail ? `${code}: ${detail}` : code);
    this.name = "CallFailure";
    this.code = code;
    this.detail = detail;
  }
}

/** @type {Record<FailureCode, {title: string, advice: string}>} */
const SENTENCES = {
  insecure_context: {
    title: "This page needs a secure address",
    advice: "Browsers only lend the microphone to https:// pages and to localhost. Open this page over HTTPS.",
  },
  unsupported: {
    title: "This browser cannot make calls",
    advice: "It has no WebRTC. A current Firefox, Chrome, Edge or Safari will do.",
  },
  microphone_missing: {
    title: "No microphone found",
    advice: "Plug one in or switch one on, then call again.",
  },
  microphone_denied: {
    title: "The microphone is blocked",
    advice: "Allow the microphone for this page in the browser's address bar or settings, then call again.",
  },
  microphone_busy: {
    title: "The microphone is in use",
    advice: "Another program or the system holds it. Close that program, then call again.",
  },
  microphone_failed: {
    title: "The microphone did not start",
    advice: "Choose another microphone below, or plug this one in again, then call again.",
  },
  server_unreachable: {
    title: "The server does not respond",
    advice: "Check that it is running and that you are online. This page keeps trying.",
  },
  server_not_ready: {
    title: "The server is getting ready",
    advice: "This page keeps asking. You can call as soon as it is ready.",
  },
  token_needed: {
    title: "This server asks for an access token",
    advice: "Press Call and enter the token its owner gave you.",
  },
  token_wrong: {
    title: "The access token was not accepted",
    advice: "Check it with the server's owner, then call again.",
  },
  server_busy: {
    title: "All lines are busy",
    advice: "The server has as many calls as it takes. Try again in a moment.",
  },
  call_refused: {
    title: "The server refused the call",
    advice: "Call again. If it happens every time, the server's log says why.",
  },
  no_answer: {
    title: "No answer",
    advice: "The server took the call but did not answer in time. Call again in a moment.",
  },
  media_blocked: {
    title: "No sound can get through",
    advice: "The server answered, but a firewall or network stands between. Try another network, or ask the server's owner.",
  },
  line_lost: {
    title: "The line was lost",
    advice: "The connection broke and did not come back. Call again when your network is steady.",
  },
  server_gone: {
    title: "The server has gone",
    advice: "It stopped in the middle of the call. Call again when it is back.",
  },
};

/**
 * Return a heading and a sentence of advice for `failure`, with the server's own words where it gave some.
 * @param {CallFailure} failure
 */
export function explain(failure) {
  const { title, advice } = SENTENCES[failure.code];
  return { title, advice, detail: failure.detail };
}

/**
 * Return `error` as a CallFailure; anything unforeseen becomes `fallback` with its message as detail.
 * @param {unknown} error
 * @param {FailureCode} fallback
 */
export function asFailure(error, fallback) {
  if (error instanceof CallFailure) return error;
  return new CallFailure(fallback, error instanceof Error ? error.message : String(error));
}
