/* Building elements. Text only ever becomes text, never markup. */

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

/** An element that is looked up by its id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Put text into an element only when it changes, so that screen readers are not told the same twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Call `work` once after calls have paused for so many milliseconds. */
export function debounced(work, milliseconds) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}
