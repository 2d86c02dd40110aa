/* One run or training: status, curves and map, live. */

import { draw as drawBlocks } from "/assets/blocks.js";
import { describeBlocks } from "/assets/frames.js";
import { drawLegend } from "/assets/legend.js";
import { makeMap } from "/assets/map_view.js";
import { runPanels } from "/assets/panels.js";
import { theme } from "/assets/theme.js";
import { trainingPanels } from "/assets/training_page.js";
import { fileOf, get, listen, post } from "./api.js";
import { h, say } from "./dom.js";
import { badge, progressOf } from "./list.js";
import { makeLivePlots } from "./plots_live.js";
import { seriesOf } from "./series.js";
import { ago, labelOf, valueOf } from "./words.js";

const FACTS = {
  run: ["accuracy", "loss", "clustering_accuracy", "epsilon_max", "served", "violators", "delay_s"],
  training: ["reward", "reward_without_penalty", "served", "violating_rounds", "guarded_reward", "alone_reward"],
};
const RUN_PLOTS = [
  ["accuracy", "Test accuracy"], ["loss", "Training loss"], ["identities", "Identities"],
  ["epsilon", "Largest epsilon"], ["service", "Users"], ["delay", "Delay"],
];
const TRAINING_PLOTS = [
  ["reward", "Reward"], ["violations", "Violations"], ["served", "Served users"], ["loss", "Loss of the value network"],
];
/** Kinds of violations with their names, for trainings. */
const KINDS = [
  ["unable", "task not run there"], ["beyond_blocks", "more users than blocks"], ["selected_twice", "chosen twice"],
  ["no_block", "no block"], ["no_broadcast", "no broadcast"],
];

/** Fill the page. */
export function showEntry(host, query) {
  const id = query.get("id") ?? "";
  const parts = {
    state: h("div", { class: "bar" }), message: h("p", { class: "alert", role: "alert", hidden: true }),
    facts: h("dl", { class: "tiles" }), plots: h("div", { class: "panels" }), files: h("p"),
    map: h("section", { hidden: true }), settings: h("div"),
  };
  const page = { id, entry: null, rows: [], site: null, map: null };
  const plots = makeLivePlots(parts.plots);
  host.append(
    h("p", {}, h("a", { href: "#/runs" }, "All runs")), h("h1", {}, id), parts.state, parts.message, parts.facts,
    h("div", { class: "sides" }, parts.map, h("section", {}, h("h2", {}, "Curves"), parts.plots)),
    h("h2", {}, "Files and settings"), parts.files, parts.settings,
  );
  const fail = (error) => {
    parts.message.hidden = !error;
    say(parts.message, error ? error.message : "");
  };
  const loadDetails = () => get("entry", { id }).then((details) => showDetails(parts, page, details)).catch(fail);

  // Rows arrive in bursts; one redraw per animation frame is enough.
  let pending = false;
  const redraw = () => {
    pending = false;
    if (page.rows.length) plots.show((colours) => panelsOf(page, colours));
    showFacts(parts.facts, page);
  };
  const later = () => {
    if (!pending) requestAnimationFrame(redraw);
    pending = true;
  };
  const stop = listen("follow", { id }, {
    reset: () => {
      page.rows = [];
      later();
    },
    rows: (rows) => {
      page.rows.push(...rows);
      later();
    },
    frame: (data) => showFrame(parts.map, page, data),
    entry: (entry) => {
      const ended = page.entry?.status === "running" && entry.status !== "running";
      const first = page.entry === null;
      page.entry = entry;
      showState(parts.state, page, fail);
      if (entry.message) fail(new Error(entry.message));
      else if (first || entry.status === "running") fail(null);
      if (first || ended) loadDetails();
      later();
    },
    gone: () => fail(new Error("This run is no longer in the folder.")),
  }, (open, closed) => {
    if (closed) fail(new Error("There is no such run, or the dashboard has ended. Go back to all runs."));
  });
  return () => {
    stop();
    plots.destroy();
  };
}

/** Status and actions. Buttons are rebuilt only when the actions change, so that they keep the focus. */
function showState(host, page, fail) {
  const { entry } = page;
  const possible = [entry.status, entry.stoppable, entry.resumable, entry.kind].join();
  if (page.possible !== possible) {
    page.possible = possible;
    page.line = h("span", { class: "line" });
    host.replaceChildren(page.line, actions(page, fail));
  }
  const about = [
    entry.kind, entry.scenario, entry.policy, entry.seed === null ? "" : `seed ${entry.seed}`,
    `changed ${ago(entry.updated)}`,
  ];
  page.line.replaceChildren(
    badge(entry.status), progressOf(entry), h("span", { class: "muted" }, about.filter(Boolean).join(", ")),
  );
}

function actions(page, fail) {
  const { entry, id } = page;
  const act = (path, doing, body = {}) => async (event) => {
    const button = event.target;
    const text = button.textContent;
    button.disabled = true;
    say(button, doing);
    try {
      await post(path, { id, ...body });
      fail(null);
    } catch (error) {
      fail(error);
      button.disabled = false;
      say(button, text);
    }
  };
  const like = new URLSearchParams({ entry: id, kind: entry.kind });
  const continues = entry.resumable && entry.status !== "finished";
  return h("span", { class: "actions" },
    entry.stoppable && h("button", { type: "button", onclick: act("stop", "Stopping") }, "Stop"),
    continues && h("button", { type: "button", class: "main", onclick: act("resume", "Resuming") }, "Resume"),
    entry.resumable && entry.status === "finished" && entry.kind === "run" && extension(entry, act),
    h("a", { class: "button", href: `#/new?${like}` }, "New one like this"),
    h("a", { class: "button", href: `#/compare?${new URLSearchParams({ id })}` }, "Compare"));
}

/** A field for extending a finished run. */
function extension(entry, act) {
  const field = h("input", {
    type: "number", min: entry.done + 1, step: 1, value: entry.done + 10, id: "more-rounds", class: "short",
  });
  const extend = (event) => act("resume", "Extending", { rounds: Number(field.value) })(event);
  return h("span", { class: "pair" },
    h("label", { for: "more-rounds" }, "Rounds"), field, h("button", { type: "button", onclick: extend }, "Extend"));
}

function showFacts(host, { entry, rows }) {
  if (!entry) return;
  const last = rows[rows.length - 1];
  const names = last ? FACTS[entry.kind].filter((name) => last[name] !== undefined && last[name] !== null) : [];
  host.replaceChildren(...names.map((name) =>
    h("div", {}, h("dt", {}, labelOf(name)), h("dd", {}, valueOf(name, last[name])))));
}

function panelsOf({ entry, rows, site }, colours) {
  const series = seriesOf(rows);
  if (entry?.kind === "training" || "epoch" in series) {
    const panels = trainingPanels({ series: withColumns(series), kinds: KINDS }, colours);
    return TRAINING_PLOTS.map(([name, title]) => ({ name, title, plot: panels[name] }));
  }
  if (site === null || !("group_loss" in series)) return simplePanels(series, colours);
  const panels = runPanels({ series, site, start: {}, frames: [] }, colours);
  panels.epsilon = epsilonPanel(series, colours);
  return RUN_PLOTS.map(([name, title]) => ({ name, title, plot: panels[name] }));
}

/** Validation columns are missing in trainings without validation. */
function withColumns(series) {
  const empty = series.epoch.map(() => null);
  const validation = ["alone_reward", "alone_violators", "guarded_reward", "guarded_violators"];
  const names = [...validation, ...KINDS.map(([name]) => name)];
  return { ...Object.fromEntries(names.map((name) => [name, empty])), ...series };
}

/** For runs without a checkpoint, whose groups and colours are unknown. */
function simplePanels(series, colours) {
  return ["accuracy", "loss", "clustering_accuracy", "epsilon_max"].filter((name) => name in series).map((name) => ({
    name,
    title: labelOf(name),
    plot: {
      x: series.round, xLabel: "round",
      lines: [{ label: labelOf(name), values: series[name], colour: colours.accent }],
    },
  }));
}

function epsilonPanel(series, colours) {
  if (series.epsilon_max.every((value) => value === null)) return { message: "Unlimited: uploads left without noise." };
  const lines = [{ label: "largest epsilon of a user", values: series.epsilon_max, colour: colours.second, shape: 0 }];
  return { x: series.round, xLabel: "round", yLabel: "epsilon", lines };
}

/** The map of the last round. Built once and then redrawn, so that the selection is kept. */
function showFrame(host, page, { site, frame }) {
  // One object for all rounds: the map holds a reference, and the matching of tasks to groups in it changes.
  page.site = page.site === null ? site : Object.assign(page.site, site);
  if (!frame) return;
  if (page.map === null) {
    const title = h("h2");
    const legend = h("ul", { class: "legend" });
    const map = h("div", { id: "map" });
    const blocks = h("div", { class: "scroll", tabindex: "0" });
    const canvas = blocks.appendChild(h("canvas", { role: "img" }));
    host.append(title, map, legend, h("h3", {}, "Blocks"), blocks);
    host.hidden = false;
    host.parentElement.classList.add("two");
    page.map = { title, canvas, blocks, legend, view: makeMap(map, page.site) };
  }
  say(page.map.title, `The network in round ${frame.round}`);
  page.map.view.show(frame);
  const matched = JSON.stringify(site.matched);
  if (page.map.matched !== matched) {
    page.map.matched = matched;
    drawLegend(page.map.legend, page.site);
  }
  const width = Math.min(900, page.map.blocks.clientWidth);
  drawBlocks(page.map.canvas, { site, frame }, { width, colours: theme() });
  page.map.canvas.setAttribute("aria-label", `Round ${frame.round}. ${describeBlocks(site, frame)}`);
}

function showDetails(parts, page, details) {
  const links = details.files.map((name) => {
    const report = name === "report.html";
    const look = report && "button main";
    const attributes = { href: fileOf(page.id, name), target: "_blank", rel: "noopener", class: look };
    return h("a", attributes, report ? "Open the report" : name);
  });
  parts.files.replaceChildren(...(links.length ? links.flatMap((link) => [link, " "]) : ["No files yet."]));
  parts.settings.replaceChildren(
    tableOf("Scenario", details.scenario),
    Object.keys(details.learner).length ? tableOf("Learner", details.learner) : "",
    notesOf(details.summary),
  );
}

function notesOf({ notes }) {
  if (!Array.isArray(notes) || !notes.length) return "";
  const about = { class: "notes", "aria-label": "Privacy of this run" };
  return h("aside", about, notes.map((note) => h("p", {}, String(note))));
}

function tableOf(title, values) {
  const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const rows = Object.entries(values).flatMap(([key, value]) =>
    isTable(value) ? Object.entries(value).map(([inner, one]) => [`${key}.${inner}`, one]) : [[key, value]]);
  const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const cells = rows.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, textOf(value))));
  const table = h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("tbody", {}, cells)));
  return h("details", {}, h("summary", {}, title), table);
}
