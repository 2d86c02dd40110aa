/* The list of runs and trainings. */

import { get } from "./api.js";
import { h, say } from "./dom.js";
import { ago, STATUS, valueOf } from "./words.js";

/** Columns of the table: title, cell content, sort key, and whether it is numeric. */
const COLUMNS = [
  { title: "Name", key: (entry) => entry.id },
  { title: "Status", key: (entry) => entry.status, cell: (entry) => badge(entry.status) },
  { title: "Progress", key: share, cell: progressOf },
  { title: "Scenario", key: (entry) => entry.scenario },
  { title: "Policy", key: (entry) => entry.policy },
  { title: "Seed", key: (entry) => entry.seed ?? -1, cell: (entry) => String(entry.seed ?? ""), number: true },
  { title: "Accuracy", ...numberColumn("accuracy") },
  { title: "Epsilon", ...numberColumn("epsilon_max") },
  { title: "Reward", ...numberColumn("reward") },
  { title: "Changed", key: (entry) => -entry.updated, cell: (entry) => ago(entry.updated) },
];

/** Selected entries and sort order, kept across page changes. */
const kept = { chosen: new Set(), sort: COLUMNS.length - 1, down: false, filter: "" };

/** Fill the page. */
export function showList(host, query, shared) {
  const rows = new Map();
  const body = h("tbody");
  const compare = h("a", { class: "button", href: "#/compare" }, "Compare");
  const status = h("p", { class: "muted", role: "status" });
  const filter = h("input", {
    type: "search", id: "filter", value: kept.filter, placeholder: "name, scenario, policy or status",
    oninput: () => {
      kept.filter = filter.value;
      update();
    },
  });
  const heads = COLUMNS.map((column, index) => head(column, index, () => update()));
  const first = h("th", {}, h("span", { class: "hidden" }, "Choose"));
  const table = h("table", { class: "list" }, h("thead", {}, h("tr", {}, first, heads)), body);

  function update() {
    const all = [...shared.entries.values()];
    const shown = all.filter((entry) => matches(entry, kept.filter)).sort(order);
    arrange(body, shown.map((entry) => rowOf(rows, entry, choose)));
    heads.forEach((cell, index) => cell.setAttribute("aria-sort", sortWord(index)));
    say(status, summary(all, shown, shared.known));
    table.hidden = all.length === 0;
    choose();
  }
  function choose() {
    const known = [...kept.chosen].filter((id) => shared.entries.has(id));
    const words = new URLSearchParams(known.map((id) => ["id", id]));
    compare.href = `#/compare?${words}`;
    say(compare, known.length ? `Compare ${known.length} chosen` : "Compare");
  }

  host.append(
    h("h1", {}, "Runs and trainings"),
    h("div", { class: "bar" },
      h("label", { for: "filter" }, "Find"), filter, compare,
      h("a", { class: "button main", href: "#/new" }, "New run")),
    status,
    h("div", { class: "scroll", tabindex: "0" }, table),
  );
  get("about")
    .then((about) => say(host.querySelector("h1"), `Runs and trainings in the folder ${about.folder}`))
    .catch(() => {});
  shared.watchers.add(update);
  update();
  const timer = setInterval(update, 30_000);
  return () => clearInterval(timer);
}

/** The status of an entry: an icon and a word, so that colour is not the only channel. */
export function badge(status) {
  const [word, sign] = STATUS[status];
  return h("span", { class: `badge ${status}` }, h("span", { "aria-hidden": "true" }, sign), ` ${word}`);
}

/** Progress of an entry, as numbers and as a bar. */
export function progressOf(entry) {
  const noun = entry.kind === "training" ? "epochs" : "rounds";
  const total = entry.total ?? entry.done;
  return h("span", { class: "progress" },
    h("progress", { value: entry.done, max: Math.max(total, 1), "aria-label": `${entry.done} of ${total} ${noun}` }),
    ` ${entry.done.toLocaleString("en")}/${total.toLocaleString("en")} ${noun}`);
}

function numberColumn(name) {
  return {
    key: (entry) => (typeof entry.numbers[name] === "number" ? entry.numbers[name] : -Infinity),
    cell: (entry) => (name in entry.numbers ? valueOf(name, entry.numbers[name]) : ""),
    number: true,
  };
}

function share(entry) {
  return entry.total ? entry.done / entry.total : 0;
}

function head(column, index, update) {
  const sort = () => {
    kept.down = kept.sort === index ? !kept.down : column.number === true;
    kept.sort = index;
    update();
  };
  const button = h("button", { type: "button", class: "plain", onclick: sort }, column.title);
  return h("th", { scope: "col", class: column.number && "n" }, button);
}

function sortWord(index) {
  if (index !== kept.sort) return "none";
  return kept.down ? "descending" : "ascending";
}

function order(first, second) {
  const { key } = COLUMNS[kept.sort];
  const [one, other] = [key(first), key(second)];
  const sign = one < other ? -1 : one > other ? 1 : first.id < second.id ? -1 : 1;
  return kept.down ? -sign : sign;
}

function matches(entry, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const about = [entry.id, entry.scenario, entry.policy, entry.status, entry.kind].join(" ").toLowerCase();
  return words.every((word) => about.includes(word));
}

/** Put rows into the table; rows already in place are not touched, so that they keep the focus. */
function arrange(body, rows) {
  const same = rows.length === body.children.length && rows.every((row, index) => body.children[index] === row);
  if (!same) body.replaceChildren(...rows);
}

/** The row of an entry. Its checkbox and link are created once; cells are updated when they change. */
function rowOf(rows, entry, choose) {
  if (!rows.has(entry.id)) rows.set(entry.id, { mark: "", ...makeRow(entry, choose) });
  const known = rows.get(entry.id);
  const mark = JSON.stringify(entry) + ago(entry.updated);
  if (known.mark !== mark) {
    known.mark = mark;
    known.row.title = entry.message;
    known.cells.forEach((place, index) => {
      const { key, cell } = COLUMNS[index + 1];
      place.replaceChildren(cell ? cell(entry) : String(key(entry)));
    });
  }
  return known.row;
}

function makeRow(entry, choose) {
  const box = h("input", {
    type: "checkbox", checked: kept.chosen.has(entry.id), "aria-label": `Choose ${entry.id}`,
    onchange: () => {
      if (box.checked) kept.chosen.add(entry.id);
      else kept.chosen.delete(entry.id);
      choose();
    },
  });
  const link = h("a", { href: `#/run?${new URLSearchParams({ id: entry.id })}` }, entry.id);
  const cells = COLUMNS.slice(1).map(({ title, number }) => h("td", { "data-title": title, class: number && "n" }));
  const row = h("tr", {}, h("td", { class: "choice" }, box), h("td", { "data-title": "Name" }, link), cells);
  return { row, cells };
}

function summary(all, shown, known) {
  if (!known) return "Looking.";
  if (!all.length) return "There are no runs in this folder yet. Start one with New.";
  const running = all.filter((entry) => entry.status === "running").length;
  const found = shown.length === all.length ? `${all.length}` : `${shown.length} of ${all.length}`;
  return `${found} ${all.length === 1 ? "entry" : "entries"}, ${running} running.`;
}
