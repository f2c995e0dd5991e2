// @ts-check
/** Asks a person for the server's access token. */

import { element } from "./page.js";

/**
 * Open the dialog and return what was entered, or "" if the person would rather not.
 * @returns {Promise<string>}
 */
export function askForToken() {
  const dialog = element("token-dialog", HTMLDialogElement);
  const input = element("token", HTMLInputElement);
  input.value = "";
  dialog.returnValue = "";
  element("token-cancel").onclick = () => dialog.close();
  dialog.showModal();
  return new Promise((resolve) => {
    /** @type {HTMLFormElement} */ (input.form).onsubmit = () => resolve(input.value.trim());
    dialog.onclose = () => resolve(""); // after a submit this changes nothing
  });
}
