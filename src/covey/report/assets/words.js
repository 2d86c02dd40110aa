/* Formatting of numbers and units, as in the tables of the reports. */

const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "\u00b5"], [1e-9, "n"]];

/** `digits` significant digits; "none" for a missing value. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "none";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-4 && size < 1e6) {
    const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  }
  return value.toExponential(digits - 1).replace("e+", "e");
}

/** A fraction as a percentage. */
export function percent(share) {
  return share === null || share === undefined ? "none" : `${(100 * share).toFixed(1)}\u00a0%`;
}

/** The SI prefix for a value, with its factor. */
export function prefixOf(value) {
  if (!value) return [1, ""];
  return PREFIXES.find(([size]) => Math.abs(value) >= size) ?? PREFIXES[PREFIXES.length - 1];
}

/** A value with its SI prefix. */
export function quantity(value, unit) {
  if (value === null || value === undefined) return "none";
  const [size, prefix] = prefixOf(value);
  return `${number(value / size)} ${prefix}${unit}`;
}

/** "1 user", "3 users", "no users". */
export function count(amount, noun, plural = `${noun}s`) {
  const word = amount === 1 ? noun : plural;
  return amount ? `${amount.toLocaleString("en")} ${word}` : `no ${word}`;
}
