/* Display names of columns and statuses, and relative times. */

import { number, percent, quantity } from "/assets/words.js";

export const STATUS = {
  running: ["running", "\u25b6"],
  finished: ["finished", "\u2713"],
  interrupted: ["interrupted", "\u2016"],
  failed: ["failed", "\u2717"],
};

const SHARES = new Set(["accuracy", "clustering_accuracy", "clipped_fraction", "violating_rounds", "majority", "central", "personal_accuracy"]);
const NAMES = {
  majority: "accuracy of the most frequent class", central: "accuracy of a central model",
  clustering_accuracy: "right identities", adjusted_rand_index: "adjusted Rand index", epsilon_max: "largest epsilon",
  rho_max: "largest rho", rho_mean: "mean rho", violating_rounds: "rounds with a violation",
  clipped_fraction: "gradients cut", mean_gradient_norm: "mean gradient norm", selected: "chosen users",
  served: "served users", violators: "violating users", guarded_reward: "validation reward, guarded",
  guarded_violators: "validation violations, guarded", alone_reward: "validation reward, alone",
  alone_violators: "validation violations, alone", protocol_bytes: "bytes of secure aggregation",
};
const UNITS = { s: "s", j: "J", bps: "bit/s", bytes: "bytes" };

/** Whether a column is a fraction. */
export function isShare(column) {
  return SHARES.has(column) || /^(task|group)_(accuracy|majority|central|personal_accuracy)_\d+$/.test(column);
}

/** The unit given by the suffix of a column's name, or nothing. */
export function unitOf(column) {
  return UNITS[column.split("_").pop()] ?? "";
}

/** The display name of a column. */
export function labelOf(column) {
  if (column in NAMES) return NAMES[column];
  const unit = unitOf(column);
  return (unit ? column.slice(0, column.lastIndexOf("_")) : column).replaceAll("_", " ");
}

/** A value of a column as text, including "infinite" and missing values. */
export function valueOf(column, value) {
  if (value === null || value === undefined) return "none";
  if (typeof value === "string") return value;
  if (isShare(column)) return percent(value);
  const unit = unitOf(column);
  if (unit && unit !== "bytes") return quantity(value, unit);
  return Number.isInteger(value) ? value.toLocaleString("en") : number(value);
}

/** The age of a time, given in seconds since 1970. */
export function ago(time, now = Date.now() / 1000) {
  const seconds = Math.max(0, now - time);
  if (seconds < 60) return "just now";
  const steps = [[60, "minute"], [3600, "hour"], [86400, "day"]];
  const [size, noun] = steps.findLast(([length]) => seconds >= length);
  const amount = Math.floor(seconds / size);
  return `${amount} ${noun}${amount === 1 ? "" : "s"} ago`;
}
