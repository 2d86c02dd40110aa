/* The controls of the playground: a preset, and number fields with step buttons. */

import { debounced, h } from "./dom.js";

/** Limits that can be changed: key, label, unit, and the step of the buttons beside the field. */
const LIMITS = [
  { key: "network.users", label: "Users", step: 1, places: true },
  { key: "network.stations", label: "Stations", step: 1, places: true },
  { key: "network.blocks", label: "Blocks per station", step: 1 },
  { key: "radio.min_rate_bps", label: "Rate floor (bit/s)", step: 250_000 },
  { key: "radio.noise_dbm_per_block", label: "Receiver noise (dBm)", step: 5 },
  { key: "radio.downlink_limit_s", label: "Downlink limit (s)", step: 0.002 },
  { key: "privacy.v_max", label: "Noise cap V_max", step: 1 },
  { key: "privacy.n_min", label: "Noise floor N_min", step: 25 },
  { key: "training.clip", label: "Clipping norm", step: 0.5 },
];

/**
 * Build the controls. presets, slow: as listed by the server; most: maximum sizes by name. onChange(places) is
 * called after a change; `places` says whether stations and users must be placed again.
 *
 * Returns { values(): { preset, overrides, rounds }, slow(): whether slow policies are wanted }.
 */
export function makeControls(host, { presets, slow }, most, { onChange, onNewPlaces, onUse }) {
  const state = { preset: "quick", limits: [], places: false };
  const later = debounced(() => {
    const { places } = state;
    state.places = false;
    onChange(places);
  }, 200);
  const changed = (places) => {
    state.places ||= Boolean(places);
    later();
  };
  const fields = h("div", { class: "fields" });
  const names = presets.map(({ name }) => h("option", { value: name }, name));
  const preset = h("select", { id: "playground-preset" }, names);
  const rounds = h("input", { id: "playground-rounds", type: "number", min: 1, oninput: () => changed() });
  const alsoSlow = h("input", { type: "checkbox", onchange: () => changed() });
  const start = () => {
    const { values } = presets.find(({ name }) => name === state.preset);
    state.limits = LIMITS.map((limit) => fieldOf(limit, values, most, changed));
    rounds.value = String(values.training.rounds);
    fields.replaceChildren(
      field(preset, "Preset", preset), ...state.limits.map(({ element }) => element),
      field(rounds, "Rounds for epsilon", rounds),
    );
  };
  preset.value = state.preset;
  preset.addEventListener("change", () => {
    state.preset = preset.value;
    start();
    changed(true);
  });
  start();
  host.replaceChildren(
    fields,
    h("label", { class: "box", hidden: slow.length === 0 }, alsoSlow, ` Also ${slow.join(", ")} (slow)`),
    h("div", { class: "bar" },
      h("button", { type: "button", onclick: onNewPlaces }, "New places"),
      h("button", { type: "button", onclick: onUse }, "Use for a run")),
  );
  return {
    slow: () => alsoSlow.checked,
    values: () => ({
      preset: state.preset,
      overrides: state.limits.filter(({ isChanged }) => isChanged()).map(({ override }) => override()),
      ...(Number(rounds.value) > 0 ? { rounds: Number(rounds.value) } : {}),
    }),
  };
}

function fieldOf({ key, label, step, places }, values, most, changed) {
  const [section, name] = key.split(".");
  const start = values[section][name];
  const input = h("input", {
    id: `limit-${section}-${name}`, type: "number", step: "any", value: String(Math.min(start, most[name] ?? start)),
    oninput: () => changed(places),
  });
  const nudge = (sign) => () => {
    input.value = String(Number((Number(input.value) + sign * step).toPrecision(6)));
    changed(places);
  };
  const stepper = h("span", { class: "stepper" },
    h("button", { type: "button", "aria-label": `Less: ${label}`, onclick: nudge(-1) }, "\u2212"), input,
    h("button", { type: "button", "aria-label": `More: ${label}`, onclick: nudge(1) }, "+"));
  return {
    element: field(input, label, stepper),
    isChanged: () => input.value !== String(start),
    override: () => `${key}=${input.value}`,
  };
}

function field(control, label, element) {
  return h("div", { class: "field" }, h("label", { for: control.id }, label), element);
}
