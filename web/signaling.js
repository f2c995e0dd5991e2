// @ts-check
/** The server's HTTP side: readiness, placing a call, trickling candidates, hanging up. */

import { CallFailure } from "./failures.js";

/**
 * @typedef {{url: string, token: string, certificate_sha256_list: string[]}} ControlOffer
 * @typedef {{sdp: string, type: RTCSdpType, call_id: string, control: ControlOffer | null}} Answer
 * @typedef {{ready: boolean, reachable: boolean, reason: string, recorded?: boolean}} Readiness
 */

/** Longer than the slowest answer seen from a loaded server, shorter than a person's patience. */
const ANSWER_TIMEOUT_MS = 15_000;
const READINESS_TIMEOUT_MS = 5_000;
const TOKEN_KEY = "antiphon.access_token";

export class Signaling {
  /** @param {string} baseUrl the page's own address; the API lies beside it */
  constructor(baseUrl) {
    this.baseUrl = baseUrl;
    this.token = sessionItem();
  }

  /** @param {string} token kept until the tab is closed */
  setToken(token) {
    this.token = token;
    try {
      if (token) sessionStorage.setItem(TOKEN_KEY, token);
      else sessionStorage.removeItem(TOKEN_KEY);
    } catch {
      // storage may be switched off; the token then lasts as long as the page
    }
  }

  /** @returns {Promise<Readiness>} never throws */
  async readiness() {
    try {
      const response = await this.#fetch("readyz", { signal: AbortSignal.timeout(READINESS_TIMEOUT_MS) });
      if (response.ok) {
        const { recorded } = await response.json().catch(() => ({}));
        return { ready: true, reachable: true, reason: "", recorded: recorded === true };
      }
      return { ready: false, reachable: true, reason: await wordsOf(response) };
    } catch {
      return { ready: false, reachable: false, reason: "" };
    }
  }

  /**
   * Send the offer and return the answer.
   * @param {RTCSessionDescription} offer
   * @param {AbortSignal} signal aborts when the person gives up
   * @returns {Promise<Answer>} throws CallFailure
   */
  async place(offer, signal) {
    const response = await this.#place(offer, signal);
    if (response.ok) return response.json();
    const words = await wordsOf(response);
    if (response.status === 401 || response.status === 403) {
      throw new CallFailure(this.token ? "token_wrong" : "token_needed");
    }
    if (response.status === 429) throw new CallFailure("server_busy", words);
    if (response.status === 503) {
      const { ready } = await this.readiness();
      throw new CallFailure(ready ? "server_busy" : "server_not_ready", words);
    }
    throw new CallFailure("call_refused", words || `HTTP ${response.status}`);
  }

  /**
   * Hand over candidates found after the offer was sent (RFC 8840); a failure is left to ICE itself.
   * @param {string} callId
   * @param {string} fragment
   */
  async trickle(callId, fragment) {
    const headers = { "Content-Type": "application/trickle-ice-sdpfrag" };
    await this.#fetch(callPath(callId), { method: "PATCH", headers, body: fragment }).catch(() => undefined);
  }

  /**
   * End the call; `keepalive` lets it outlive the page.
   * @param {string} callId
   */
  async hangUp(callId) {
    await this.#fetch(callPath(callId), { method: "DELETE", keepalive: true }).catch(() => undefined);
  }

  /**
   * @param {RTCSessionDescription} offer
   * @param {AbortSignal} signal
   */
  async #place(offer, signal) {
    const body = JSON.stringify({ sdp: offer.sdp, type: offer.type });
    const timeout = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    const headers = { "Content-Type": "application/json" };
    try {
      return await this.#fetch("calls", { method: "POST", headers, body, signal: AbortSignal.any([signal, timeout]) });
    } catch {
      throw new CallFailure(timeout.aborted ? "no_answer" : "server_unreachable");
    }
  }

  /**
   * @param {string} path
   * @param {RequestInit} init
   */
  #fetch(path, init) {
    const headers = new Headers(init.headers);
    if (this.token) headers.set("Authorization", `Bearer ${this.token}`);
    return fetch(new URL(path, this.baseUrl), { ...init, headers, cache: "no-store" });
  }
}

/** @param {string} callId */
function callPath(callId) {
  return `calls/${encodeURIComponent(callId)}`;
}

/**
 * The server's own sentence: a JSON body's `reason`, `message` or `error`, or a short plain text.
 * @param {Response} response
 */
async function wordsOf(response) {
  const text = (await response.text().catch(() => "")).trim();
  try {
    const body = JSON.parse(text);
    const words = body?.reason ?? body?.message ?? body?.error?.message ?? body?.error;
    return typeof words === "string" ? words : "";
  } catch {
    return text.length <= 300 && !text.startsWith("<") ? text : "";
  }
}

function sessionItem() {
  try {
    return sessionStorage.getItem(TOKEN_KEY) ?? "";
  } catch {
    return "";
  }
}
