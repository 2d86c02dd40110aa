/* The playground: move stations and users, change limits, and see the outcome of each policy at once. */

import { get, post } from "./api.js";
import { h, say } from "./dom.js";
import { makeControls } from "./playground_controls.js";
import { makePlaygroundMap } from "./playground_map.js";
import { showPolicies, showUsers } from "./playground_tables.js";
import { toToml } from "./toml.js";

/** Fill the page. */
export function showPlayground(host) {
  const state = {
    shown: "greedy", live: [], slow: [], seed: 0, network: 0, answer: null, tasks: null, busy: false, wanted: null,
    message: h("p", { class: "alert", role: "alert", hidden: true }),
    policies: h("div"),
    table: h("div"),
  };
  const mapHost = h("div", { class: "playground-map" });
  const controlsHost = h("section", { "aria-label": "Limits" });
  host.append(
    h("h1", {}, "Playground"),
    h("p", {}, "Drag stations and users. Nothing is trained: links, blocks, noise and epsilon are those of one round,"
      + " repeated."),
    state.message,
    h("div", { class: "stage" }, mapHost, controlsHost),
    h("h2", {}, "Policies side by side"), state.policies, h("h2", {}, "Users"), state.table,
  );
  state.map = makePlaygroundMap(mapHost, {
    onMove: () => ask(state, [state.shown]),
    onDrop: () => ask(state, all(state)),
    onTask: (user) => nextTask(state, user),
  });
  Promise.all([get("choices"), get("about")])
    .then(([choices, about]) => {
      Object.assign(state, { reasons: about.reasons, live: choices.live, slow: choices.slow });
      state.controls = makeControls(controlsHost, choices, about.playground, {
        onChange: (places) => {
          if (places) forget(state);
          ask(state, all(state));
        },
        onNewPlaces: () => {
          state.seed += 1;
          forget(state);
          ask(state, all(state));
        },
        onUse: () => useForRun(state),
      });
      ask(state, all(state));
    })
    .catch((error) => complain(state, error.message));
  return () => state.map.destroy();
}

function all(state) {
  return state.controls.slow() ? [...state.live, ...state.slow] : state.live;
}

/** Redraw positions and tasks from the seed. */
function forget(state) {
  [state.answer, state.tasks] = [null, null];
  state.network += 1;
  state.map.forget();
}

function questionOf(state, policies) {
  const question = { seed: state.seed, policies, ...state.controls.values() };
  if (state.answer !== null) {
    const { stations, users } = state.map.places();
    Object.assign(question, { stations_m: stations, users_m: users, samples: state.answer.samples });
  }
  if (state.tasks !== null) question.tasks = state.tasks;
  return question;
}

/** Request these policies. One request is in flight at a time; of the queued ones only the last is sent. */
async function ask(state, policies) {
  if (state.busy) {
    state.wanted = policies;
    return;
  }
  state.busy = true;
  try {
    const { network } = state;
    const answer = await post("playground", questionOf(state, policies));
    // Positions may have been redrawn meanwhile; then this response is stale.
    if (state.network === network) take(state, answer, policies);
    complain(state, "");
  } catch (error) {
    complain(state, error.message);
  } finally {
    state.busy = false;
    const next = state.wanted;
    state.wanted = null;
    if (next !== null) ask(state, next);
  }
}

/** Show a response. While dragging it holds the shown policy only; the others keep their results, marked as stale. */
function take(state, answer, policies) {
  const before = state.answer?.policies ?? [];
  if (policies.length === 1 && before.length > 1) {
    const [fresh] = answer.policies;
    answer.policies = before.map((policy) => (policy.name === fresh.name ? fresh : { ...policy, old: true }));
  }
  state.answer = answer;
  // Not overwritten by later responses: a task may have changed since the request was sent.
  state.tasks ??= answer.tasks;
  show(state);
}

function show(state) {
  const { answer } = state;
  const shown = answer.policies.find((policy) => policy.name === state.shown) ?? answer.policies[0];
  state.map.show(answer, shown);
  showPolicies(state.policies, answer, shown.name, (name) => {
    state.shown = name;
    show(state);
  });
  showUsers(state.table, answer, shown, state.reasons);
}

function nextTask(state, user) {
  const tasks = [...state.tasks];
  tasks[user] = (tasks[user] + 1) % state.answer.task_count;
  state.tasks = tasks;
  ask(state, all(state));
}

function complain(state, text) {
  state.message.hidden = !text;
  say(state.message, text);
}

/** A form with this network filled in. */
function useForRun(state) {
  const { stations, users } = state.map.places();
  const { preset, overrides } = state.controls.values();
  const words = new URLSearchParams({ preset });
  const places = [
    `network.stations=${stations.length}`, `network.users=${users.length}`,
    `network.station_positions_m=${toToml(rounded(stations))}`, `network.user_positions_m=${toToml(rounded(users))}`,
  ];
  [...overrides, ...places].forEach((override) => words.append("set", override));
  location.hash = `#/new?${words}`;
}

/** Points rounded to a tenth of a metre, the resolution of the map. */
function rounded(points) {
  return points.map((point) => point.map((value) => Math.round(10 * value) / 10));
}
