/* The dashboard: routing, and the list that all pages share. */

import { listen } from "./api.js";
import { showCompare } from "./compare.js";
import { byId, h, say } from "./dom.js";
import { showEntry } from "./entry.js";
import { showForm } from "./form.js";
import { showList } from "./list.js";
import { showPlayground } from "./playground.js";

const PAGES = { runs: showList, run: showEntry, compare: showCompare, new: showForm, playground: showPlayground };

/** Runs and trainings by id, kept up to date by the server. */
const shared = { entries: new Map(), known: false, watchers: new Set() };

/**
 * A page is a function (host, query, shared) that fills the host and may return a cleanup function.
 * `shared.watchers` are called when entries change.
 */
let leave = () => {};

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const name = path in PAGES ? path : "runs";
  leave();
  shared.watchers.clear();
  const host = byId("main");
  host.replaceChildren();
  document.querySelectorAll("nav a").forEach((link) => {
    const here = link.getAttribute("href") === `#/${name === "run" ? "runs" : name}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  leave = PAGES[name](host, new URLSearchParams(query), shared) ?? (() => {});
  const title = host.querySelector("h1")?.textContent;
  document.title = title ? `${title}: covey dashboard` : "covey dashboard";
}

function changed() {
  shared.watchers.forEach((watcher) => watcher());
}

function watch() {
  // The first event of a stream holds the whole list: entries missing from it were removed while disconnected.
  let first = true;
  listen("watch", {}, {
    entries: (entries) => {
      if (first) shared.entries.clear();
      first = false;
      entries.forEach((entry) => shared.entries.set(entry.id, entry));
      shared.known = true;
      changed();
    },
    gone: (names) => {
      names.forEach((name) => shared.entries.delete(name));
      changed();
    },
  }, (open, closed) => {
    if (open) first = true;
    connection(open, closed);
  });
}

function connection(open, closed = false) {
  const line = byId("connection");
  line.classList.toggle("bad", !open);
  if (open) say(line, "");
  else if (closed) line.replaceChildren("Not connected. ", h("a", { href: "/" }, "Reload the page"));
  else say(line, "Connection lost, trying again.");
}

globalThis.addEventListener("hashchange", () => {
  route();
  byId("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
route();
watch();
