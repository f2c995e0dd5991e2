// @ts-check
/** Microphones and speakers: opening one, listing them, remembering the choice. */

import { CallFailure } from "./failures.js";

/** @type {Record<string, import("./failures.js").FailureCode>} */
const FAILURE_OF_ERROR = {
  NotAllowedError: "microphone_denied",
  SecurityError: "microphone_denied",
  NotFoundError: "microphone_missing",
  NotReadableError: "microphone_busy",
  AbortError: "microphone_failed",
};

/** Throw a CallFailure if this page or browser can make no call at all. */
export function requireCallSupport() {
  if (!window.isSecureContext) throw new CallFailure("insecure_context");
  if (!window.RTCPeerConnection || !navigator.mediaDevices?.getUserMedia) throw new CallFailure("unsupported");
}

/**
 * Open a microphone with echo cancellation; a device that is gone gives way to the default one.
 * @param {string} deviceId empty for the default
 * @returns {Promise<MediaStream>} throws CallFailure
 */
export async function openMicrophone(deviceId) {
  requireCallSupport();
  /** @type {MediaTrackConstraints} */
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: { ideal: 1 } };
  if (deviceId) audio.deviceId = { exact: deviceId };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    const name = error instanceof Error ? error.name : "";
    if (deviceId && (name === "OverconstrainedError" || name === "NotFoundError")) return openMicrophone("");
    const detail = error instanceof Error ? error.message : String(error);
    const code = FAILURE_OF_ERROR[name] ?? "microphone_failed";
    throw new CallFailure(code, code === "microphone_failed" ? detail : "");
  }
}

/**
 * List what may be chosen from; entries the browser will not name yet are left out.
 * @returns {Promise<{microphones: MediaDeviceInfo[], speakers: MediaDeviceInfo[]}>}
 */
export async function listDevices() {
  if (!navigator.mediaDevices?.enumerateDevices) return { microphones: [], speakers: [] };
  const devices = (await navigator.mediaDevices.enumerateDevices()).filter((device) => device.deviceId && device.label);
  return {
    microphones: devices.filter((device) => device.kind === "audioinput"),
    speakers: canChooseSpeaker() ? devices.filter((device) => device.kind === "audiooutput") : [],
  };
}

/** Whether this browser lets a page choose the speaker. */
export function canChooseSpeaker() {
  return "setSinkId" in HTMLMediaElement.prototype;
}

/**
 * Read a remembered device id.
 * @param {"microphone" | "speaker"} kind
 */
export function rememberedDevice(kind) {
  try {
    return localStorage.getItem(`antiphon.${kind}`) ?? "";
  } catch {
    return ""; // storage may be switched off; then nothing is remembered
  }
}

/**
 * Remember a device id for the next visit.
 * @param {"microphone" | "speaker"} kind
 * @param {string} deviceId
 */
export function rememberDevice(kind, deviceId) {
  try {
    localStorage.setItem(`antiphon.${kind}`, deviceId);
  } catch {
    // storage may be switched off; the choice then lasts as long as the page
  }
}
