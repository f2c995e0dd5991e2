// @ts-check
/** The page's elements, by id. */

/**
 * Return the element `id` of index.html, as `kind`.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @param {new () => T} [kind]
 * @returns {T}
 */
export function element(id, kind) {
  const found = document.getElementById(id);
  if (!found || (kind && !(found instanceof kind))) throw new Error(`index.html has no #${id}`);
  return /** @type {T} */ (found);
}
