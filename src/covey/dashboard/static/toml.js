/* Values of a scenario as the text one types for them, and back into overrides of the command line. */

/** A value as TOML on one line; nothing for what is not set. */
export function toToml(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return `[${value.map(toToml).join(", ")}]`;
  if (typeof value === "object") {
    const pairs = Object.entries(value).map(([key, one]) => `${keyOf(key)} = ${toToml(one)}`);
    return `{${pairs.join(", ")}}`;
  }
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/** What a field shows for a value: text without quotes. */
export function shownText(value) {
  return typeof value === "string" ? value : toToml(value);
}

/** The override that sets a key to what was typed. Text that could be read as something else is quoted. */
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
