// @ts-check
/** Pure functions over session descriptions. */

/**
 * Write candidates as the fragment of RFC 8840 that a PATCH carries.
 * @param {string} localSdp the offer they belong to
 * @param {RTCIceCandidate[]} candidates
 * @param {boolean} complete whether no more will follow
 */
export function candidateFragment(localSdp, candidates, complete) {
  const lines = [attribute(localSdp, "ice-ufrag"), attribute(localSdp, "ice-pwd")];
  const mids = new Set(candidates.map((candidate) => candidate.sdpMid ?? "0"));
  if (mids.size === 0) mids.add(firstMid(localSdp));
  for (const mid of mids) {
    lines.push("m=audio 9 UDP/TLS/RTP/SAVPF 0", `a=mid:${mid}`);
    for (const { candidate } of candidates.filter((each) => (each.sdpMid ?? "0") === mid)) lines.push(`a=${candidate}`);
    if (complete) lines.push("a=end-of-candidates");
  }
  return lines.join("\r\n") + "\r\n";
}

/**
 * Return the offer with `a=rtcp-fb:N nack` for each Opus payload type that lacks it (RFC 4585, 4.2).
 * @param {string} sdp
 */
export function askForNack(sdp) {
  return sdp.replace(/^a=rtpmap:(\d+) opus\/48000\/2\r?$/gim, (line, payloadType) => {
    const ask = `a=rtcp-fb:${payloadType} nack`;
    return new RegExp(`^${ask}\\r?$`, "m").test(sdp) ? line : `${line.trimEnd()}\r\n${ask}\r`;
  });
}

/**
 * Return the answer with audio/red as its first codec, or as its last.
 * @param {string} sdp
 * @param {boolean} first
 * @returns {string | null} null where the answer has no audio/red
 */
export function preferRed(sdp, first) {
  const red = sdp.match(/^a=rtpmap:(\d+) red\/48000\/2\r?$/im)?.[1];
  if (!red) return null;
  return sdp.replace(/^(m=audio \d+ \S+)((?: \d+)+)/m, (_, head, formats) => {
    const others = formats.trim().split(" ").filter((/** @type {string} */ each) => each !== red);
    return [head, ...(first ? [red, ...others] : [...others, red])].join(" ");
  });
}

/**
 * @param {string} sdp
 * @param {string} name
 */
function attribute(sdp, name) {
  return sdp.match(new RegExp(`^a=${name}:.*$`, "m"))?.[0].trim() ?? "";
}

/** @param {string} sdp */
function firstMid(sdp) {
  return sdp.match(/^a=mid:(\S+)/m)?.[1] ?? "0";
}
