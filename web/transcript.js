// @ts-check
/** Both sides' words as they grow. What is final moves into the log, which screen readers announce; drafts stay quiet. */

const PEER_NAME = "Antiphon";

export class Transcript {
  #log;
  #drafts;
  #panel;
  /** Whether nothing was said yet in the present call. */
  #fresh = false;
  /** @type {Map<string, HTMLLIElement>} keyed "user 3" or "peer 3" by turn of the present call */ #open = new Map();
  /** @type {Map<string, HTMLLIElement>} the caller's final utterances of the present call, which may be gone on with */
  #closed = new Map();

  /**
   * @param {HTMLElement} panel scrolls
   * @param {HTMLElement} log holds final utterances
   * @param {HTMLElement} drafts holds those still growing
   */
  constructor(panel, log, drafts) {
    this.#panel = panel;
    this.#log = log;
    this.#drafts = drafts;
  }

  /** Begin another call below what stands; turns count from the start again. */
  beginCall() {
    this.finish();
    this.#closed.clear();
    this.#fresh = true;
  }

  /** Close what is still open, as at the end of a call. */
  finish() {
    for (const item of this.#open.values()) {
      if (wordsOf(item).textContent?.trim()) this.#log.append(item);
      else item.remove();
    }
    this.#open.clear();
  }

  #remarkOnNewCall() {
    this.#fresh = false;
    if (this.#log.children.length === 0) return;
    const item = document.createElement("li");
    item.className = "remark";
    item.textContent = "A new call: what was said above is forgotten.";
    this.#log.append(item);
  }

  /** @param {Record<string, any>} message of transport/messages.py; others are ignored */
  handleMessage(message) {
    switch (message.type) {
      case "input_audio_buffer.speech_started":
        this.#reopen(message.turn);
        break;
      case "conversation.item.input_audio_transcription.delta":
        this.#drawPartial(this.#utterance("user", message.turn), message.text, message.stable_chars ?? 0);
        break;
      case "conversation.item.input_audio_transcription.completed":
        wordsOf(this.#utterance("user", message.turn)).textContent = message.text;
        this.#close("user", message.turn);
        break;
      case "response.output_audio_transcript.delta": {
        const words = wordsOf(this.#utterance("peer", message.turn));
        words.textContent = joined(words.textContent ?? "", message.text);
        break;
      }
      case "response.done":
        this.#drawReply(this.#utterance("peer", message.turn), message);
        this.#close("peer", message.turn);
        break;
      default:
        return;
    }
    this.#follow();
  }

  /**
   * @param {HTMLElement} item
   * @param {string} text
   * @param {number} stableChars
   */
  #drawPartial(item, text, stableChars) {
    const unsure = document.createElement("span");
    unsure.className = "unsure";
    unsure.textContent = text.slice(stableChars);
    wordsOf(item).replaceChildren(text.slice(0, stableChars), unsure);
  }

  /**
   * @param {HTMLElement} item
   * @param {Record<string, any>} done
   */
  #drawReply(item, done) {
    const reply = String(done.reply_text ?? "");
    const heard = done.status === "interrupted" ? String(done.heard_text ?? "") : reply;
    const words = wordsOf(item);
    if (!heard.trim()) return words.replaceChildren(); // withdrawn before it sounded
    words.replaceChildren(reply.startsWith(heard) ? heard : reply);
    if (done.status === "interrupted" && reply.startsWith(heard) && heard.length < reply.length) {
      const unheard = document.createElement("span");
      unheard.className = "unheard";
      unheard.textContent = reply.slice(heard.length);
      words.append(unheard);
    }
    const remark = remarkOf(done);
    if (!remark) return;
    const note = document.createElement("p");
    note.className = "aside";
    note.textContent = remark;
    item.append(note);
  }

  /**
   * @param {"user" | "peer"} side
   * @param {number} turn
   */
  #utterance(side, turn) {
    const key = `${side} ${turn}`;
    const known = this.#open.get(key);
    if (known) return known;
    const closed = this.#closed.get(key);
    if (closed) return closed;
    if (this.#fresh) this.#remarkOnNewCall();
    const item = document.createElement("li");
    item.className = `utterance ${side}`;
    const who = document.createElement("p");
    who.className = "who";
    who.textContent = side === "user" ? "You" : PEER_NAME;
    const words = document.createElement("p");
    words.className = "words";
    item.append(who, words);
    this.#drafts.append(item);
    this.#open.set(key, item);
    return item;
  }

  /**
   * The caller went on before a word of the answer was heard: it is one turn still.
   * @param {number} turn
   */
  #reopen(turn) {
    const key = `user ${turn}`;
    const item = this.#closed.get(key);
    if (!item) return;
    this.#closed.delete(key);
    this.#open.set(key, item);
    this.#drafts.append(item);
  }

  /**
   * @param {"user" | "peer"} side
   * @param {number} turn
   */
  #close(side, turn) {
    const key = `${side} ${turn}`;
    const item = this.#open.get(key);
    if (!item) return; // its text was replaced where it stands
    this.#open.delete(key);
    if (!wordsOf(item).textContent?.trim()) return item.remove(); // a cough taken for speech, a reply nobody heard
    this.#log.append(item);
    if (side === "user") this.#closed.set(key, item);
  }

  #follow() {
    const { scrollHeight, scrollTop, clientHeight } = this.#panel;
    if (scrollHeight - scrollTop - clientHeight < 240) this.#panel.scrollTop = scrollHeight; // unless the reader went back up
  }
}

/** @param {HTMLElement} item */
function wordsOf(item) {
  return /** @type {HTMLElement} */ (item.querySelector(".words"));
}

/**
 * @param {string} before
 * @param {string} more
 */
function joined(before, more) {
  const wide = /[\u3000-\u30ff\u3400-\u9fff\uff01-\uff1f]$/.test(before) && /^[\u3000-\u30ff\u3400-\u9fff]/.test(more);
  const needsSpace = before !== "" && !wide && !/\s$/.test(before) && !/^[\s.,;:!?…')\]]/.test(more);
  return before + (needsSpace ? " " : "") + more;
}

/** @param {Record<string, any>} done */
function remarkOf(done) {
  if (done.status === "interrupted") return "You interrupted here.";
  if (done.status === "failed") return "The answer broke off.";
  const totalMs = done.latency_ms?.total;
  return typeof totalMs === "number" ? `Answered in ${(totalMs / 1000).toFixed(1)} s` : "";
}
