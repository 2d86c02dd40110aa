/* Plots with live updates. */

import { draw } from "/assets/curves.js";
import { onThemeChange, theme } from "/assets/theme.js";
import { h } from "./dom.js";

/**
 * Plots in a host element. show([{ name, title, plot }]) draws them, or updates only the values if
 * the same plots with the same lines exist. destroy() removes them.
 */
export function makeLivePlots(host) {
  let drawn = new Map();
  let make = null;

  const clear = () => {
    drawn.forEach(({ chart }) => chart.destroy());
    drawn = new Map();
    host.replaceChildren();
  };
  const paint = (panels) => {
    const fits = ({ name, plot }) => drawn.get(name)?.lines === linesOf(plot);
    const same = panels.length === drawn.size && panels.every(fits);
    if (!same) clear();
    for (const { name, title, plot } of panels) {
      if (same) {
        drawn.get(name).chart.update(plot);
        continue;
      }
      const place = h("div");
      host.append(h("figure", { "data-panel": name }, h("h3", {}, title), place));
      drawn.set(name, { lines: linesOf(plot), chart: draw(place, plot, { label: title }) });
    }
  };
  onThemeChange(() => {
    if (make === null) return;
    clear();
    paint(make(theme()));
  });
  return {
    show(maker) {
      make = maker;
      paint(maker(theme()));
    },
    destroy() {
      make = null;
      clear();
    },
  };
}

/** The structure that must be equal for a plot to be updated in place. */
function linesOf(plot) {
  return plot.message ?? plot.lines.map((line) => line.label).join("\n") + (plot.x.length === 1);
}
