/* Comparison of runs and trainings: overlaid curves, and the settings in which they differ. */

import { get } from "./api.js";
import { h, say } from "./dom.js";
import { badge } from "./list.js";
import { makeLivePlots } from "./plots_live.js";
import { together } from "./series.js";
import { isShare, labelOf, unitOf } from "./words.js";

/** Colours distinguishable in light and dark mode; dashes and markers distinguish lines without colour. */
const LINES = {
  light: [
    "#0b57b0", "#c24e00", "#00795a", "#a8417f", "#6b5500", "#5b3fd0", "#b3261e", "#007a8a", "#4d4d4d", "#7a3b00",
    "#3f6b00", "#8a0a5c",
  ],
  dark: [
    "#8ab8ff", "#ff9a57", "#4fc3a1", "#f3a5d3", "#e0c040", "#b6a5ff", "#ff9d92", "#56cfe1", "#c9ced6", "#e0a070",
    "#a8d060", "#ff8ad0",
  ],
};
const DASHES = [undefined, [8, 4], [2, 3], [10, 3, 2, 3]];
/** Columns shown by default. */
const FIRST = {
  run: ["accuracy", "loss", "clustering_accuracy", "epsilon_max"],
  training: ["reward", "violators", "guarded_reward", "served"],
};
/** Columns drawn beside accuracy: name, label, dash. */
const REFERENCES = [["majority", "most frequent class", [2, 3]], ["central", "central model", [10, 3, 2, 3]]];
/** Maximum number of columns shown at once. */
const MOST = 22;
/** Polling interval for running entries, in milliseconds. */
const AGAIN = 2000;

/** Selected columns, kept across page changes. */
const kept = { columns: null };

/** Fill the page. */
export function showCompare(host, query, shared) {
  const ids = [...new Set(query.getAll("id"))];
  const status = h("p", { class: "muted", role: "status" });
  const plotsHost = h("div", { class: "panels wide" });
  const plots = makeLivePlots(plotsHost);
  const columns = h("div", { class: "choices" });
  const differences = h("div");
  const page = { ids, shared, known: shared.known, left: false };
  host.append(
    h("h1", {}, "Compare"), picker(ids, shared), status,
    h("details", { open: globalThis.innerWidth > 700 }, h("summary", {}, "Columns"), columns),
    plotsHost, h("h2", {}, "Differences of settings"), differences,
  );
  if (!ids.length) {
    say(status, "Choose runs or trainings above, or in the list of runs.");
    return () => {};
  }
  const load = async () => {
    const wanted = kept.columns ?? firstColumns(ids, shared);
    try {
      const beside = wanted.includes("accuracy") ? REFERENCES.map(([name]) => name) : [];
      const curves = await get("curves", { id: ids, column: [...new Set([...wanted, ...beside])] });
      if (page.left) return;
      const asked = usable(wanted, curves);
      showColumns(columns, curves, wanted, load);
      plots.show((colours) => asked.map((name) => panelOf(name, curves.curves, page, colours)));
      say(status, asked.length ? "" : "None of the chosen columns is there yet; choose others.");
    } catch (error) {
      say(status, error.message);
    }
  };
  const compare = () => get("differences", { id: ids })
    .then((found) => showDifferences(differences, found))
    .catch((error) => say(status, error.message));
  const timer = setInterval(() => {
    if (ids.some((id) => shared.entries.get(id)?.status === "running") && !document.hidden) load();
  }, AGAIN);
  shared.watchers.add(() => {
    // The kinds of the entries, and so their columns, are known once the first list arrives.
    if (!page.known) {
      page.known = true;
      load();
    }
  });
  load();
  compare();
  return () => {
    page.left = true;
    clearInterval(timer);
    plots.destroy();
  };
}

/** The compared entries, with controls to add and remove. */
function picker(ids, shared) {
  const go = (wanted) => {
    location.hash = `#/compare?${new URLSearchParams(wanted.map((id) => ["id", id]))}`;
  };
  const select = h("select", { id: "add-entry", onchange: () => select.value && go([...ids, select.value]) });
  const fill = () => {
    const more = [...shared.entries.keys()].filter((id) => !ids.includes(id)).sort();
    if (select.options.length === more.length + 1) return;
    const first = h("option", { value: "" }, "Add a run");
    select.replaceChildren(first, ...more.map((id) => h("option", { value: id }, id)));
  };
  const list = h("ul", { class: "chosen" });
  const show = () => {
    fill();
    const without = (id) => () => go(ids.filter((one) => one !== id));
    list.replaceChildren(...ids.map((id, index) => chip(id, index, shared.entries.get(id), without(id))));
  };
  shared.watchers.add(show);
  show();
  return h("div", {}, list, h("div", { class: "bar" }, h("label", { for: "add-entry" }, "Add"), select));
}

function chip(id, index, entry, remove) {
  return h("li", {},
    h("a", { href: `#/run?${new URLSearchParams({ id })}` }, `${index + 1}. ${id}`), entry && badge(entry.status),
    h("button", { type: "button", "aria-label": `Remove ${id}`, onclick: remove }, "Remove"));
}

function firstColumns(ids, shared) {
  const kinds = new Set(ids.map((id) => shared.entries.get(id)?.kind ?? "run"));
  return [...new Set([...kinds].flatMap((kind) => FIRST[kind]))];
}

function usable(wanted, curves) {
  return wanted.filter((name) => curves.curves[name]?.length);
}

function panelOf(name, found, { ids, shared }, colours) {
  const curves = found[name];
  const beside = name === "accuracy" ? references(found, ids, colours) : [];
  const { x, values } = together([...curves, ...beside.map(({ curve }) => curve)]);
  const unit = unitOf(name);
  const lines = curves.map((curve, index) => {
    const place = ids.indexOf(curve.id);
    return {
      label: `${place + 1}. ${curve.id}`, values: values[index], gaps: true, shape: place,
      colour: LINES[colours.dark ? "dark" : "light"][place % 12], dash: DASHES[place % 4],
    };
  });
  beside.forEach(({ curve: _, ...line }, index) => {
    lines.push({ ...line, values: values[curves.length + index], gaps: true });
  });
  const kinds = new Set(curves.map(({ id }) => (shared.entries.get(id)?.kind === "training" ? "epoch" : "round")));
  const plot = {
    x, xLabel: [...kinds].join(" or "), yLabel: unit || undefined, share: isShare(name), lines,
    ...(values.flat().some((value) => value !== null) ? {} : { message: "Infinite or undefined everywhere." }),
  };
  return { name, title: labelOf(name), plot };
}

/** What accuracy is read against: one line where all entries have the same, or one for each that has its own. */
function references(found, ids, colours) {
  return REFERENCES.flatMap(([name, label, dash]) => {
    const known = (found[name] ?? []).filter(({ y }) => y.some((value) => value !== null));
    const different = [...new Map(known.map((curve) => [curve.y[curve.y.length - 1], curve])).values()];
    return different.map((curve) => ({
      curve, dash, width: 2, colour: colours.alarm,
      label: different.length > 1 ? `${label} of ${ids.indexOf(curve.id) + 1}` : label,
    }));
  });
}

/** A checkbox per column; the many columns by task and group are collapsed. */
function showColumns(host, { columns }, wanted, load) {
  const mark = columns.map((column) => column.name + column.entries).join();
  if (host.dataset.mark === mark) return;
  host.dataset.mark = mark;
  const boxOf = ({ name, entries }) => {
    const box = h("input", {
      type: "checkbox", checked: wanted.includes(name),
      onchange: () => {
        const chosen = [...host.querySelectorAll("input:checked")].map((one) => one.value);
        kept.columns = chosen.slice(0, MOST);
        load();
      },
    });
    box.value = name;
    return h("label", { title: `${name}, in ${entries} of the entries` }, box, ` ${labelOf(name)}`);
  };
  const single = columns.filter(({ name }) => !/_\d+$/.test(name));
  const many = columns.filter(({ name }) => /_\d+$/.test(name));
  const boxes = (some) => h("div", { class: "boxes" }, some.map(boxOf));
  host.replaceChildren(
    boxes(single), many.length ? h("details", {}, h("summary", {}, "By task and group"), boxes(many)) : "",
  );
}

function showDifferences(host, { entries, different, equal }) {
  if (!different.length) {
    const none = entries.length > 1 ? `None: all ${equal} settings are equal.` : "Add another run to see differences.";
    host.replaceChildren(h("p", {}, none));
    return;
  }
  const head = h("tr", {},
    h("th", { scope: "col" }, "Setting"), entries.map((id, index) => h("th", { scope: "col" }, `${index + 1}. ${id}`)));
  const textOf = (value) => (value === null ? "not set" : String(value));
  const nameOf = (key) => (key === "total" ? "rounds or epochs" : key);
  const rows = different.map(({ key, values }) =>
    h("tr", {}, h("th", { scope: "row" }, nameOf(key)), values.map((value) => h("td", {}, textOf(value)))));
  host.replaceChildren(
    h("p", {}, `${different.length} settings differ, ${equal} are equal.`),
    h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))),
  );
}
