/* Conversion between scenario values, form input, and overrides of the command line. */

/** A value as one line of TOML; empty if not set. */
export function toToml(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return `[${value.map(toToml).join(", ")}]`;
  if (typeof value === "object") {
    const pairs = Object.entries(value).map(([key, one]) => `${keyOf(key)} = ${toToml(one)}`);
    return `{${pairs.join(", ")}}`;
  }
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/** A value as form input: strings without quotes. */
export function shownText(value) {
  return typeof value === "string" ? value : toToml(value);
}

/** The override that sets a key to the input. Ambiguous strings are quoted. */
export function overrideOf(key, text, isText) {
  const typed = text.trim();
  if (typed === "") return `${key}=default`;
  if (!isText) return `${key}=${typed}`;
  const bare = /^[A-Za-z_][\w./ -]*$/.test(typed) && !/^(true|false|inf|nan|default)$/.test(typed);
  return `${key}=${bare ? typed : JSON.stringify(typed)}`;
}

function keyOf(key) {
  return /^\w+$/.test(key) ? key : JSON.stringify(key);
}
