/* All plots of a page: drawing, redrawing on a theme change, and the shared round marker. */

import { draw } from "./curves.js";
import { onThemeChange, theme } from "./theme.js";

/**
 * Draw into every element with a `data-plot` attribute the plot of that name.
 *
 * make(colours) returns all plots by name. onChoose(x) is called when a plot is clicked, except for
 * those named in `own`, whose x axis differs. Returns { mark(x): highlight an x in all plots,
 * refresh(name, plot): replace values, plot being a function }. Off-screen plots are updated only once
 * they become visible, which keeps the slider responsive.
 */
export function makePlots(make, { onChoose, own = [] }) {
  const hosts = [...document.querySelectorAll("[data-plot]")];
  const seen = new Set();
  const late = new Map(hosts.map((host) => [host, []]));
  const latest = new Map();
  let drawn = new Map();

  const catchUp = (host) => {
    late.get(host).forEach((key) => latest.get(key)(drawn.get(host.dataset.plot)));
    late.set(host, []);
  };
  const ask = (host, key, work) => {
    latest.set(key, work);
    if (!late.get(host).includes(key)) late.get(host).push(key);
    if (seen.has(host)) catchUp(host);
  };
  const build = () => {
    drawn.forEach((plot) => plot.destroy());
    const colours = theme();
    const plots = make(colours);
    drawn = new Map(
      hosts.map((host) => {
        const name = host.dataset.plot;
        const choose = own.includes(name) ? undefined : onChoose;
        return [name, draw(host, plots[name], { colours, label: host.dataset.label, onChoose: choose })];
      }),
    );
  };
  build();
  const watcher = new IntersectionObserver((entries) => {
    entries.forEach(({ target, isIntersecting }) => {
      if (isIntersecting) {
        seen.add(target);
        catchUp(target);
      } else {
        seen.delete(target);
      }
    });
  }, { rootMargin: "150px" });
  hosts.forEach((host) => watcher.observe(host));
  const marked = hosts.filter((host) => !own.includes(host.dataset.plot));
  const mark = (x) => marked.forEach((host) => ask(host, "mark", (plot) => plot.mark(x)));
  onThemeChange(() => {
    build();
    if (latest.has("mark")) marked.forEach((host) => ask(host, "mark", latest.get("mark")));
  });
  return {
    mark,
    refresh(name, plot) {
      const host = hosts.find((candidate) => candidate.dataset.plot === name);
      ask(host, name, (chart) => chart.update(plot()));
    },
  };
}
