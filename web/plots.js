// @ts-check
/** Small live plots of a minute, with their newest values as text beside them. */

const POINTS = 120;

/** @typedef {{key: keyof import("./telemetry.js").Reading, name: string, color: string, dashed?: boolean}} Curve */
/** @typedef {{title: string, unit: string, digits: number, ceiling: number, curves: Curve[]}} PlotSpec */

/** @type {PlotSpec[]} `ceiling` is the least top of the axis, so that calm looks calm */
const SPECS = [
  {
    title: "Round trip", unit: "ms", digits: 0, ceiling: 50,
    curves: [
      { key: "rttMs", name: "media", color: "--peer" },
      { key: "channelRttMs", name: "control", color: "--you" },
    ],
  },
  {
    title: "Jitter", unit: "ms", digits: 0, ceiling: 20,
    curves: [
      { key: "jitterDownMs", name: "to you", color: "--peer" },
      { key: "jitterUpMs", name: "from you", color: "--you" },
    ],
  },
  {
    title: "Loss", unit: "%", digits: 1, ceiling: 5,
    curves: [
      { key: "lossDownPct", name: "to you", color: "--peer" },
      { key: "lossUpPct", name: "from you", color: "--you" },
    ],
  },
  {
    title: "Buffer", unit: "ms", digits: 0, ceiling: 100,
    curves: [
      { key: "bufferDownMs", name: "to you", color: "--peer" },
      { key: "targetDownMs", name: "target", color: "--peer", dashed: true },
      { key: "bufferUpMs", name: "from you", color: "--you" },
      { key: "targetUpMs", name: "target", color: "--you", dashed: true },
    ],
  },
];

/** All plots of the page. */
export class PlotBoard {
  #plots;

  /** @param {HTMLElement} container */
  constructor(container) {
    this.#plots = SPECS.map((spec) => new Plot(container, spec));
    const redraw = () => this.#plots.forEach((plot) => plot.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new ResizeObserver(redraw).observe(container);
  }

  /** @param {import("./telemetry.js").Reading} reading */
  add(reading) {
    for (const plot of this.#plots) plot.add(reading);
  }

  clear() {
    for (const plot of this.#plots) plot.clear();
  }
}

class Plot {
  #spec;
  #canvas = document.createElement("canvas");
  /** @type {HTMLElement[]} */ #readouts = [];
  /** @type {Float32Array[]} */ #history;

  /**
   * @param {HTMLElement} container
   * @param {PlotSpec} spec
   */
  constructor(container, spec) {
    this.#spec = spec;
    this.#history = spec.curves.map(() => new Float32Array(POINTS).fill(NaN));
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = spec.title;
    this.#canvas.setAttribute("aria-hidden", "true"); // the readouts say the same in words
    figure.append(caption, this.#canvas, this.#legend());
    container.append(figure);
  }

  #legend() {
    const list = document.createElement("dl");
    for (const { name, color, dashed } of this.#spec.curves) {
      const pair = document.createElement("div");
      const term = document.createElement("dt");
      term.textContent = name;
      term.style.setProperty("--curve", `var(${color})`);
      if (dashed) term.className = "dashed";
      const value = document.createElement("dd");
      value.textContent = "–";
      this.#readouts.push(value);
      pair.append(term, value);
      list.append(pair);
    }
    return list;
  }

  /** @param {import("./telemetry.js").Reading} reading */
  add(reading) {
    this.#spec.curves.forEach(({ key }, index) => {
      const value = Number(reading[key]);
      const history = this.#history[index];
      history.copyWithin(0, 1);
      history[POINTS - 1] = value;
      this.#readouts[index].textContent = Number.isNaN(value) ? "–" : `${value.toFixed(this.#spec.digits)} ${this.#spec.unit}`;
    });
    this.draw();
  }

  clear() {
    for (const history of this.#history) history.fill(NaN);
    for (const readout of this.#readouts) readout.textContent = "–";
    this.draw();
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const context = this.#canvas.getContext("2d");
    if (!context || width === 0) return; // the panel is closed
    const scale = devicePixelRatio || 1;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    context.scale(scale, scale);
    const style = getComputedStyle(this.#canvas);
    const top = this.#ceiling();
    drawGrid(context, width, height, style, `${top} ${this.#spec.unit}`);
    this.#spec.curves.forEach(({ color, dashed }, index) => {
      context.strokeStyle = style.getPropertyValue(color);
      context.setLineDash(dashed ? [3, 3] : []);
      drawCurve(context, this.#history[index], width, height, top);
    });
  }

  /** A round number above everything shown. */
  #ceiling() {
    let top = this.#spec.ceiling;
    for (const history of this.#history) for (const value of history) if (value > top) top = value;
    if (top === this.#spec.ceiling) return top;
    const step = 10 ** Math.floor(Math.log10(top));
    return Math.ceil(top / step) * step;
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} width
 * @param {number} height
 * @param {CSSStyleDeclaration} style
 * @param {string} label of the top line
 */
function drawGrid(context, width, height, style, label) {
  context.strokeStyle = style.getPropertyValue("--rule");
  context.lineWidth = 1;
  context.beginPath();
  for (const y of [0.5, Math.round(height / 2) + 0.5, height - 0.5]) {
    context.moveTo(0, y);
    context.lineTo(width, y);
  }
  context.stroke();
  context.fillStyle = style.getPropertyValue("--soft");
  context.font = `11px ${style.fontFamily}`;
  context.fillText(label, 2, 13);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Float32Array} history
 * @param {number} width
 * @param {number} height
 * @param {number} top
 */
function drawCurve(context, history, width, height, top) {
  context.lineWidth = 1.75;
  context.lineJoin = "round";
  context.beginPath();
  let down = false;
  history.forEach((value, index) => {
    if (Number.isNaN(value)) {
      down = false;
      return;
    }
    const x = (index / (POINTS - 1)) * width;
    const y = height - 1.5 - (value / top) * (height - 3);
    if (down) context.lineTo(x, y);
    else context.moveTo(x, y);
    down = true;
  });
  context.stroke();
}
