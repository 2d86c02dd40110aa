/* Building elements. Strings become text nodes, never markup. */

/**
 * An element with attributes and children.
 *
 * Attributes: `class`, any HTML attribute, and on... for listeners; false, null and undefined leave an
 * attribute out. Children: elements, text, numbers, lists of them; false and null are left out.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== false && child !== null && child !== undefined));
  return element;
}

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Put text into an element only when it changes, so that screen readers do not repeat it. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Debounce: call `work` once, this many milliseconds after the last call. */
export function debounced(work, milliseconds) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}
