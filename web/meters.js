// @ts-check
/** Sound levels of both directions, measured in the page. */

/** Below this a person hears nothing; the meter's left end. */
export const FLOOR_DBFS = -60;

/** Peak-holding level of one stream. */
export class LevelMeter {
  /** @type {AnalyserNode | null} */ #analyser = null;
  /** @type {MediaStreamAudioSourceNode | null} */ #source = null;
  #samples = new Float32Array(1024);
  #level = 0;

  /**
   * @param {AudioContext} context
   * @param {MediaStream | null} stream null detaches
   */
  attach(context, stream) {
    this.#source?.disconnect();
    this.#source = this.#analyser = null;
    this.#level = 0;
    if (!stream || stream.getAudioTracks().length === 0) return;
    this.#analyser = new AnalyserNode(context, { fftSize: this.#samples.length });
    this.#source = new MediaStreamAudioSourceNode(context, { mediaStream: stream });
    this.#source.connect(this.#analyser);
  }

  /** @returns {number} RMS of the last 20 ms or so, dBFS; -Infinity in silence */
  readDbfs() {
    if (!this.#analyser) return -Infinity;
    this.#analyser.getFloatTimeDomainData(this.#samples);
    let sum = 0;
    for (const sample of this.#samples) sum += sample * sample;
    return 10 * Math.log10(sum / this.#samples.length);
  }

  /** @returns {number} 0..1 for display: rises at once, falls within about half a second */
  read() {
    const now = Math.min(1, Math.max(0, 1 - this.readDbfs() / FLOOR_DBFS));
    this.#level = Math.max(now, this.#level * 0.9);
    return this.#level;
  }
}
