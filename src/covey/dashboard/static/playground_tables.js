/* The tables of the playground: policies side by side, and users under the shown policy. */

import { number, quantity } from "/assets/words.js";
import { sentence } from "./api.js";
import { h } from "./dom.js";

const CONSTRAINTS = {
  users_per_station: "blocks of a station (11b)", downlink_time: "downlink time (11c)", uplink_rate: "rate floor (11d)",
  noise_cap: "noise cap (11e)", noise_floor: "noise floor (11f)",
};
/** Maximum number of binding indices listed per constraint. */
const NAMED = 6;

/** One column per policy; choose(name) is called to show one. */
export function showPolicies(host, answer, shown, choose) {
  const { policies } = answer;
  const users = answer.users_m.length;
  const slots = answer.downlink_slots > 999 ? "any number" : answer.downlink_slots;
  const rows = [
    ["served users", (policy) => `${policy.served} of ${users}`],
    ["their samples", (policy) => policy.samples.toLocaleString("en")],
    ["broadcasts", (policy) => `${policy.broadcasts} of ${slots}`],
    ["violating users", (policy) => String(policy.violators)],
    [`largest epsilon after ${answer.rounds} rounds`, (policy) => epsilon(policy.epsilon_max)],
    ["what binds", (policy) => placesOf(policy.constraints.filter((one) => one.ok && one.binding.length))],
    ["what is broken", (policy) => placesOf(policy.constraints.filter((one) => !one.ok))],
  ];
  const corner = h("th", {}, h("span", { class: "hidden" }, "Result"));
  const heads = policies.map(({ name }) => h("th", { scope: "col" }, chooser(name, name === shown, choose)));
  const body = rows.map(([title, cell], row) =>
    h("tr", {}, h("th", { scope: "row" }, title), policies.map((policy) => cellOf(policy, cell, row))));
  host.replaceChildren(scroll(h("table", { class: "policies" },
    h("thead", {}, h("tr", {}, corner, heads)), h("tbody", {}, body))));
}

function chooser(name, pressed, choose) {
  const attributes = { type: "button", "aria-pressed": String(pressed), onclick: () => choose(name) };
  return h("button", attributes, name.replace("_", " "));
}

function cellOf(policy, cell, row) {
  const content = policy.error ? (row === 0 ? sentence(policy.error) : "") : cell(policy);
  return h("td", { class: policy.old && "old" }, content);
}

/** One row per user under the shown policy. */
export function showUsers(host, answer, policy, reasons) {
  if (policy.error) {
    host.replaceChildren(h("p", {}, sentence(policy.error)));
    return;
  }
  const heads = [
    "User", "Task", "Samples", "Station", "Block", "Rate", "Noise std", `Epsilon after ${answer.rounds} rounds`, "Why",
  ];
  const last = heads.length - 1;
  const rows = answer.tasks.map((task, user) => {
    const cells = [task, answer.samples[user], ...linkOf(policy, user), reasons[policy.reason[user]]];
    return h("tr", {}, h("th", { scope: "row" }, String(user)),
      cells.map((cell, index) => h("td", { class: index + 1 < last && "n" }, String(cell))));
  });
  const head = heads.map((text, index) => h("th", { scope: "col", class: index > 0 && index < last && "n" }, text));
  host.replaceChildren(
    h("p", {}, `Under ${policy.name.replace("_", " ")}.`),
    scroll(h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows))),
  );
}

/** Station, block, rate, noise and epsilon of a user. */
function linkOf(policy, user) {
  if (policy.station[user] < 0) return ["", "", "", "", "0"];
  return [
    policy.station[user], policy.block[user], quantity(policy.rate_bps[user], "bit/s"), number(policy.noise_std[user]),
    epsilon(policy.epsilon[user]),
  ];
}

function scroll(table) {
  return h("div", { class: "scroll", tabindex: "0" }, table);
}

function epsilon(value) {
  return typeof value === "number" ? number(value) : value;
}

function placesOf(constraints) {
  if (!constraints.length) return "nothing";
  return h("ul", { class: "bare" }, constraints.map((one) => h("li", {}, placeOf(one))));
}

/** A constraint and where it binds. */
function placeOf({ name, axes, binding }) {
  const word = CONSTRAINTS[name] ?? name;
  const places = [...new Set(binding.map((index) => index[index.length - 1]))];
  if (axes[0] === "network" || !places.length) return word;
  const more = places.length > NAMED ? " and more" : "";
  return `${word}: ${axes[axes.length - 1]} ${places.slice(0, NAMED).join(", ")}${more}`;
}
