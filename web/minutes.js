// @ts-check
/** What was said in the calls of this page, to be kept as a file; nothing of it leaves the browser by itself. */

/**
 * @typedef {{who: "you" | "antiphon", turn: number, text: string, at: string, interrupted?: boolean}} Utterance
 * @typedef {{began: string, utterances: Utterance[]}} CallMinutes
 */

const NAMES = { you: "You", antiphon: "Antiphon" };

export class Minutes {
  /** Called after every change. */
  onChange = () => {};
  /** @type {CallMinutes[]} */ #calls = [];

  get isEmpty() {
    return this.#calls.every((call) => call.utterances.length === 0);
  }

  /** @param {Date} now */
  beginCall(now) {
    if (this.#calls.at(-1)?.utterances.length === 0) this.#calls.pop();
    this.#calls.push({ began: now.toISOString(), utterances: [] });
  }

  /** @param {Record<string, any>} message of transport/messages.py; those without whole utterances are ignored */
  handleMessage(message) {
    const { type, turn } = message;
    if (type === "conversation.item.input_audio_transcription.completed") this.#setUser(turn, String(message.text ?? ""));
    else if (type === "response.done") {
      const interrupted = message.status === "interrupted";
      const text = String((interrupted ? message.heard_text : message.reply_text) ?? "");
      const at = new Date().toISOString();
      if (text.trim()) this.#utterances.push({ who: "antiphon", turn, text, at, ...(interrupted && { interrupted }) });
    } else return;
    this.onChange();
  }

  asText() {
    const parts = this.#calls.map(({ began, utterances }) => {
      const lines = utterances.map(({ who, text, interrupted }) => `${NAMES[who]}: ${text}${interrupted ? " [interrupted]" : ""}`);
      return [`Call of ${new Date(began).toLocaleString()}`, "", ...lines, ""].join("\n");
    });
    return parts.join("\n");
  }

  asJson() {
    return JSON.stringify({ calls: this.#calls }, null, 2) + "\n";
  }

  /**
   * A turn that was gone on with is told again, longer.
   * @param {number} turn
   * @param {string} text
   */
  #setUser(turn, text) {
    const known = this.#utterances.find((each) => each.who === "you" && each.turn === turn);
    if (known) known.text = text;
    else if (text.trim()) this.#utterances.push({ who: "you", turn, text, at: new Date().toISOString() });
  }

  get #utterances() {
    if (this.#calls.length === 0) this.beginCall(new Date());
    return this.#calls[this.#calls.length - 1].utterances;
  }
}

/**
 * Let the browser save `text` as a file.
 * @param {string} text
 * @param {string} type
 * @param {string} ending
 */
export function offerDownload(text, type, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  link.download = `antiphon-${new Date().toISOString().slice(0, 16).replace(/[:T]/g, "-")}.${ending}`;
  document.body.append(link); // Firefox saves only what is in the document
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
