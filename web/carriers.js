// @ts-check
/** What carries the control channel: WebTransport, or the call's data channel where that is missing. */

/**
 * @typedef {object} Carrier
 * @property {"webtransport" | "data_channel"} kind
 * @property {(message: object) => void} sendDatagram may be lost
 * @property {Promise<unknown>} closed settles when nothing comes through any more
 * @property {() => void} close
 */

const OPEN_TIMEOUT_MS = 3_000;

/**
 * Open WebTransport with a one-time token; every message that comes goes to `handle`.
 * @param {import("./signaling.js").ControlOffer} offer
 * @param {string} token
 * @param {(message: Record<string, any>) => void} handle
 * @returns {Promise<Carrier>} rejects where it cannot be opened
 */
export async function openWebTransport(offer, token, handle) {
  const url = new URL(offer.url);
  url.searchParams.set("token", token);
  const session = new WebTransport(url, {
    congestionControl: "low-latency",
    serverCertificateHashes: offer.certificate_sha256_list.map((digest) => ({ algorithm: "sha-256", value: bytesOf(digest) })),
  });
  session.closed.catch(() => undefined);
  const timer = setTimeout(() => session.close(), OPEN_TIMEOUT_MS);
  await session.ready;
  clearTimeout(timer);
  const writer = session.datagrams.writable.getWriter();
  const encoder = new TextEncoder();
  void readDatagrams(session, handle);
  void readLines(session, handle);
  return {
    kind: "webtransport",
    sendDatagram: (message) => void writer.write(encoder.encode(JSON.stringify(message))).catch(() => undefined),
    closed: session.closed.catch(() => undefined),
    close: () => session.close(),
  };
}

/**
 * @param {RTCDataChannel} channel
 * @returns {Carrier}
 */
export function useDataChannel(channel) {
  return {
    kind: "data_channel",
    sendDatagram: (message) => {
      if (channel.readyState === "open") channel.send(JSON.stringify(message));
    },
    closed: new Promise((resolve) => channel.addEventListener("close", resolve, { once: true })),
    close: () => undefined, // it belongs to the call
  };
}

/**
 * @param {WebTransport} session
 * @param {(message: Record<string, any>) => void} handle
 */
async function readDatagrams(session, handle) {
  const decoder = new TextDecoder();
  const reader = session.datagrams.readable.getReader();
  await pump(reader, (bytes) => deliver(decoder.decode(bytes), handle));
}

/**
 * Read the reliable stream, which the server opens: one JSON object a line.
 * @param {WebTransport} session
 * @param {(message: Record<string, any>) => void} handle
 */
async function readLines(session, handle) {
  const streams = session.incomingBidirectionalStreams.getReader();
  const { value: stream } = await streams.read().catch(() => ({ value: undefined }));
  if (!stream) return;
  let rest = "";
  const decoder = new TextDecoder();
  await pump(stream.readable.getReader(), (bytes) => {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) deliver(line, handle);
  });
}

/**
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 * @param {(bytes: Uint8Array) => void} handle
 */
async function pump(reader, handle) {
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      handle(value);
    }
  } catch {
    // the session has ended; whoever opened it hears so from `closed`
  }
}

/**
 * @param {string} text
 * @param {(message: Record<string, any>) => void} handle
 */
function deliver(text, handle) {
  const message = parseMessage(text);
  if (message) handle(message);
}

/**
 * @param {unknown} text
 * @returns {Record<string, any> | null} null for anything that is not a JSON object with a type
 */
export function parseMessage(text) {
  if (typeof text !== "string") return null;
  try {
    const message = JSON.parse(text);
    return typeof message?.type === "string" ? message : null;
  } catch {
    return null;
  }
}

/** @param {string} hex */
function bytesOf(hex) {
  return Uint8Array.from(hex.replaceAll(":", "").match(/../g) ?? [], (pair) => parseInt(pair, 16));
}
