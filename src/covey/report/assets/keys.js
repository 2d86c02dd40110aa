/* The legend of a plot: buttons that show and hide lines, with the value of each at the selected x. */

import { addShape, prepare } from "./canvas.js";

/**
 * Add a button per line to the host; `toggle(index, show)` is called when one is pressed.
 *
 * Returns the lines that have a button: { line: its index, output: element that shows its value }.
 */
export function makeKeys(host, lines, colours, toggle) {
  const box = host.appendChild(document.createElement("div"));
  box.className = "keys";
  return lines.flatMap((line, index) => {
    if (line.key === false) return [];
    const button = box.appendChild(document.createElement("button"));
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.append(swatch(line, colours), ` ${line.label} `);
    const output = button.appendChild(document.createElement("output"));
    button.addEventListener("click", () => {
      const show = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(show));
      toggle(index, show);
    });
    return [{ line: index, output }];
  });
}

/** The line, bar or point of a legend entry on a small canvas. */
function swatch(line, colours) {
  const canvas = document.createElement("canvas");
  canvas.className = "swatch";
  canvas.setAttribute("aria-hidden", "true");
  const context = prepare(canvas, 28, 12);
  context.fillStyle = line.colour;
  context.strokeStyle = line.colour;
  if (line.kind === "bar") {
    context.fillRect(6, 0, 16, 12);
    return canvas;
  }
  context.lineWidth = line.width ?? 2;
  context.setLineDash(line.dash ?? []);
  context.beginPath();
  context.moveTo(0, 6);
  context.lineTo(28, 6);
  if (line.kind !== "points") context.stroke();
  context.beginPath();
  if (line.shape !== undefined || line.kind === "points") addShape(context, line.shape ?? 0, 14, 6, 4);
  context.fill();
  context.setLineDash([]);
  context.lineWidth = 1;
  context.strokeStyle = colours.page;
  if (line.shape !== undefined) context.stroke();
  return canvas;
}
