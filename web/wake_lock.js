// @ts-check
/** Keeps a phone's screen on during a call: with the screen many phones switch the microphone off. */

/** @type {WakeLockSentinel | null} */
let lock = null;
let wanted = false;

/** @param {boolean} on */
export function keepScreenOn(on) {
  wanted = on;
  if (on) void request();
  else {
    lock?.release().catch(() => undefined);
    lock = null;
  }
}

async function request() {
  if (!wanted || document.hidden || !navigator.wakeLock) return;
  try {
    lock = await navigator.wakeLock.request("screen");
    if (!wanted) keepScreenOn(false); // hung up meanwhile
  } catch {
    // a low battery, or a browser that would rather not: the call goes on
  }
}

document.addEventListener("visibilitychange", () => void request()); // browsers let go of it when the page is hidden
