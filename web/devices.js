// @ts-check
/** The choice of microphone and speaker. */

import { listDevices, rememberDevice, rememberedDevice } from "./microphone.js";
import { element } from "./page.js";

export class DeviceChoice {
  microphone = element("microphone", HTMLSelectElement);
  #speaker = element("speaker", HTMLSelectElement);
  #voice = element("voice", HTMLAudioElement);

  /** @param {(deviceId: string) => void} handleMicrophone a person chose another one */
  constructor(handleMicrophone) {
    this.microphone.addEventListener("change", () => {
      rememberDevice("microphone", this.microphone.value);
      handleMicrophone(this.microphone.value);
    });
    this.#speaker.addEventListener("change", () => {
      rememberDevice("speaker", this.#speaker.value);
      void this.#useSpeaker(this.#speaker.value);
    });
    navigator.mediaDevices?.addEventListener("devicechange", () => void this.refresh());
    void this.refresh();
  }

  /** List the devices again; browsers name them only once the microphone was granted. */
  async refresh() {
    const { microphones, speakers } = await listDevices().catch(() => ({ microphones: [], speakers: [] }));
    fill(this.microphone, "Default microphone", microphones, rememberedDevice("microphone"));
    fill(this.#speaker, "Default speaker", speakers, rememberedDevice("speaker"));
    const hidden = speakers.length === 0;
    this.#speaker.hidden = hidden;
    for (const label of this.#speaker.labels) label.hidden = hidden;
    if (!hidden) await this.#useSpeaker(this.#speaker.value);
  }

  /** @param {string} deviceId empty for the default */
  async #useSpeaker(deviceId) {
    if (this.#voice.sinkId === deviceId) return;
    await this.#voice.setSinkId(deviceId).catch(() => {
      this.#speaker.value = ""; // gone, or not allowed: the default plays on
    });
  }
}

/**
 * @param {HTMLSelectElement} select
 * @param {string} defaultName
 * @param {MediaDeviceInfo[]} devices
 * @param {string} chosen
 */
function fill(select, defaultName, devices, chosen) {
  const named = devices.filter((device) => device.deviceId !== "default" && device.deviceId !== "communications");
  select.replaceChildren(new Option(defaultName, ""), ...named.map((device) => new Option(device.label, device.deviceId)));
  select.value = named.some((device) => device.deviceId === chosen) ? chosen : "";
}
