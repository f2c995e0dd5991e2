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
