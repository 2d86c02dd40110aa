/* A new run or training: a form generated from the schema, validated while typing. */

import { get, post, sentence } from "./api.js";
import { debounced, h, say } from "./dom.js";
import { makeField, sectionsOf } from "./fields.js";

const KINDS = [["run", "Run: train models with a policy"], ["training", "Training: learn a policy"]];
const LEARNING = [["surrogate", "surrogate (fast)"], ["real", "real (slow)"]];
/** Sections open by default. */
const OPEN = new Set(["network", "privacy"]);
/** Debounce delay of the validation, in milliseconds. */
const PAUSE = 250;

/** Fill the page. query: kind, preset or entry to start from, and `set` overrides. */
export function showForm(host, query, shared) {
  host.append(h("h1", {}, "New run or training"), h("p", { role: "status" }, "Loading."));
  const page = { left: false };
  get("choices")
    .then((choices) => {
      if (!page.left) build(host, query, shared, choices);
    })
    .catch((error) => say(host.querySelector("p"), error.message));
  return () => {
    page.left = true;
  };
}

function build(host, query, shared, choices) {
  const state = { choices, shared, fields: new Map(), sections: new Map(), learner: new Map(), ok: false, sent: 0 };
  const check = debounced(() => judge(state), PAUSE);
  state.changed = () => {
    state.start.disabled = true;
    check();
  };
  const from = query.get("entry") ? `entry:${query.get("entry")}` : `preset:${query.get("preset") ?? "quick"}`;
  const kind = choiceOf("kind", "Kind", KINDS, query.get("kind") ?? "run");
  const base = choiceOf("base", "Start from", basesOf(state), from);
  const policy = choiceOf("policy", "Policy", policiesOf(state), "policy:greedy");
  const learning = choiceOf("learning", "Rounds inside", LEARNING, "surrogate");
  const rounds = entryOf("rounds", "Rounds", { type: "number", min: 1, placeholder: "the scenario's own" });
  const seed = entryOf("seed", "Seed", { type: "number", min: 0, value: "0" });
  const name = entryOf("name", "Folder name", { maxlength: 64, placeholder: "made from the rest" });
  Object.assign(state, { kind, base, policy, learning, rounds, seed, name });
  state.message = h("p", { class: "alert", role: "alert", hidden: true });
  state.about = h("p");
  state.command = h("code");
  state.start = h("button", { type: "submit", class: "main" }, "Start");
  state.scenario = h("div");
  state.settings = h("div");
  const parts = [kind, base, policy, learning, rounds, seed, name];
  const form = h("form", { class: "form", novalidate: true, onsubmit: (event) => submit(event, state) },
    h("div", { class: "fields" }, parts.map((part) => part.element)), state.about,
    h("p", { class: "muted" }, "Change what you need below. Values are written as in a scenario file; an empty field is"
      + " the default."),
    state.settings, state.scenario,
    h("div", { class: "sticky" },
      state.message, h("p", { class: "command" }, "Same as: ", state.command), state.start));
  for (const part of parts) part.control.addEventListener("input", state.changed);
  kind.control.addEventListener("input", () => showKind(state));
  base.control.addEventListener("input", () => loadBase(state));
  host.replaceChildren(h("h1", {}, "New run or training"), form);
  buildLearner(state);
  showKind(state);
  loadBase(state, query.getAll("set"));
  shared.watchers.add(() => refill(state));
}

/** Runs have a policy and rounds, trainings a learner. */
function showKind(state) {
  const training = state.kind.control.value === "training";
  for (const part of [state.policy, state.rounds]) part.element.hidden = training;
  state.learning.element.hidden = !training;
  state.settings.hidden = !training;
}

async function loadBase(state, overrides = []) {
  const [kind, id] = split(state.base.control.value);
  let values = state.choices.presets.find((preset) => preset.name === id)?.values;
  if (kind === "entry") {
    try {
      values = (await get("entry", { id })).scenario;
    } catch (error) {
      complain(state, error.message);
      return;
    }
  }
  say(state.about, values?.description ?? "");
  buildScenario(state, values ?? {});
  overrides.forEach((override) => {
    const at = override.indexOf("=");
    state.fields.get(override.slice(0, at))?.type(override.slice(at + 1));
  });
  state.changed();
}

function buildScenario(state, values) {
  const { scenario } = state.choices;
  const { top, sections } = sectionsOf(scenario);
  state.fields.clear();
  const add = (key, property, value) => {
    const field = makeField(key, property, scenario, value, state.changed);
    state.fields.set(key, field);
    return field.element;
  };
  const fieldsOf = (name, list) => list.map(([key, property]) => {
    const value = name ? values[name]?.[key] : values[key];
    return add(name ? `${name}.${key}` : key, property, value ?? null);
  });
  state.scenario.replaceChildren(
    ...sections.map(({ name, about, fields }) => {
      const error = h("p", { class: "wrong" });
      state.sections.set(name, error);
      return section(`${name}: ${lower(about)}`, OPEN.has(name), [error, ...fieldsOf(name, fields)]);
    }),
    section("name and description", false, fieldsOf("", top)),
  );
}

function section(title, open, fields) {
  return h("details", { open, class: "section" }, h("summary", {}, title), h("div", { class: "fields" }, fields));
}

function buildLearner(state) {
  const { learner } = state.choices;
  const fields = Object.entries(learner.properties).map(([key, property]) => {
    const field = makeField(key, property, learner, property.default ?? null, state.changed);
    state.learner.set(key, field);
    return field.element;
  });
  state.settings.replaceChildren(section("learner", true, fields));
}

/** The form as a request body. */
function formOf(state) {
  const [from, id] = split(state.base.control.value);
  const form = {
    kind: state.kind.control.value, seed: Number(state.seed.control.value || 0), name: state.name.control.value.trim(),
    overrides: changedOf(state.fields),
  };
  form[from === "entry" ? "entry" : "preset"] = id;
  if (form.kind === "training") {
    return { ...form, learner: changedOf(state.learner), learning: state.learning.control.value };
  }
  const [how, policy] = split(state.policy.control.value);
  form[how === "entry" ? "policy_of" : "policy"] = policy;
  if (state.rounds.control.value) form.rounds = Number(state.rounds.control.value);
  return form;
}

function changedOf(fields) {
  return [...fields.values()].map((field) => field.override()).filter((override) => override !== null);
}

async function judge(state) {
  const turn = (state.sent += 1);
  try {
    const answer = await post("check", formOf(state));
    // A later validation may have overtaken this one.
    if (turn !== state.sent) return;
    say(state.command, answer.command);
    complain(state, answer.ok ? "" : answer.sentence);
    showProblems(state, answer);
    state.start.disabled = !answer.ok;
  } catch (error) {
    if (turn === state.sent) complain(state, error.message);
  }
}

function showProblems(state, answer) {
  const byKey = new Map(answer.problems.map(({ key, sentence: text }) => [key, sentence(text)]));
  state.fields.forEach((field, key) => field.complain(byKey.get(key) ?? ""));
  // Errors across keys belong to their section. Sections with errors are expanded.
  state.sections.forEach((error, name) => {
    say(error, byKey.get(name) ?? "");
    const inside = answer.problems.some(({ key }) => key === name || key.startsWith(`${name}.`));
    if (inside) error.closest("details").open = true;
  });
  const setting = /learner setting '(\w+)'/.exec(answer.sentence)?.[1];
  state.learner.forEach((field, key) => field.complain(key === setting ? sentence(answer.sentence) : ""));
}

function complain(state, text) {
  state.message.hidden = !text;
  say(state.message, text ? sentence(text) : "");
}

async function submit(event, state) {
  event.preventDefault();
  state.start.disabled = true;
  try {
    const { id } = await post("start", formOf(state));
    location.hash = `#/run?${new URLSearchParams({ id })}`;
  } catch (error) {
    complain(state, error.message);
    state.start.disabled = false;
  }
}

function basesOf({ choices, shared }) {
  return [
    ...choices.presets.map(({ name, description }) => [`preset:${name}`, `preset ${name}: ${description}`]),
    ...[...shared.entries.keys()].sort().map((id) => [`entry:${id}`, `scenario of ${id}`]),
  ];
}

function policiesOf({ choices, shared }) {
  const trained = [...shared.entries.values()].filter((entry) => entry.kind === "training" && entry.done > 0);
  const learned = (name) => (choices.algorithms.includes(name) ? " (learned; trained first if needed)" : "");
  return [
    ...choices.policies.map((name) => [`policy:${name}`, `${name}${learned(name)}`]),
    ...trained.map(({ id }) => [`entry:${id}`, `trained in ${id}`]),
  ];
}

/** Add new entries to the options; the selection is kept. */
function refill(state) {
  for (const [part, options] of [[state.base, basesOf(state)], [state.policy, policiesOf(state)]]) {
    if (part.control.options.length === options.length) continue;
    const chosen = part.control.value;
    part.control.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
    part.control.value = chosen;
  }
}

function split(text) {
  const at = text.indexOf(":");
  return [text.slice(0, at), text.slice(at + 1)];
}

function choiceOf(id, label, options, value) {
  const control = h("select", { id }, options.map(([one, text]) => h("option", { value: one }, text)));
  // The requested option may not be known yet; it is added so that it can be selected.
  if (!options.some(([one]) => one === value)) control.append(h("option", { value }, split(value)[1]));
  control.value = value;
  return { control, element: h("div", { class: "field" }, h("label", { for: id }, label), control) };
}

function entryOf(id, label, attributes) {
  const control = h("input", { id, type: "text", autocomplete: "off", ...attributes });
  return { control, element: h("div", { class: "field" }, h("label", { for: id }, label), control) };
}

function lower(text) {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
