/* The map of the playground: stations and users that can be moved with mouse, touch or keyboard. */

import { draw, layout } from "/assets/map.js";
import { onThemeChange } from "/assets/theme.js";
import { quantity } from "/assets/words.js";
import { h, say } from "./dom.js";
import { drawChosen, drawSigns, pictureOf } from "./playground_picture.js";

const HELP = "Drag a station or user, or pick one and move it with the arrow keys on the map, with Shift in larger"
  + " steps. T gives a user the next task.";
/** Hit radius in pixels, and keyboard step in metres. */
const NEAR = 22;
const STEP_M = 5;
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/**
 * Build the map. onMove() is called while something is dragged, onDrop() after the drag, onTask(user)
 * when a user's task is to change. Stations are named s0, s1, ... and users u0, u1, ...
 *
 * Returns { show(answer, policy), places(): { stations, users } in metres, forget(), destroy() }.
 */
export function makePlaygroundMap(host, { onMove, onDrop, onTask }) {
  const canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": `Map. ${HELP}` });
  const details = h("p", { class: "details", "aria-live": "polite" });
  const signs = h("ul", { class: "legend" });
  const pick = h("select", { id: "pick", onchange: () => choose(pick.value || null) });
  host.append(h("div", { class: "bar" }, h("label", { for: "pick" }, "Pick"), pick), canvas, details, signs);
  const state = { answer: null, policy: null, stations: [], users: [], chosen: null, drag: null };

  const options = () => ({ width: host.clientWidth, maxHeight: Math.max(320, 0.7 * globalThis.innerHeight) });
  const placeOf = () => layout(pictureOf(state).site, options());
  const redraw = () => {
    if (state.answer === null || host.clientWidth === 0) return;
    const data = pictureOf(state);
    const selected = state.chosen?.startsWith("u") ? numberOf(state.chosen) : null;
    draw(canvas, data, { ...options(), selected });
    if (state.chosen !== null) drawChosen(canvas, state, selected, pixels(placeOf()), pointOf(state, state.chosen));
    say(details, state.chosen === null ? HELP : describe(state));
  };
  const choose = (name) => {
    state.chosen = name;
    pick.value = name ?? "";
    redraw();
  };
  const move = (name, x, y) => {
    const [width, height] = state.answer.area_m;
    const inside = (value, most) => Math.round(10 * Math.min(most, Math.max(0, value))) / 10;
    listOf(state, name)[numberOf(name)] = [inside(x, width), inside(y, height)];
    redraw();
    onMove();
  };
  listenToPointer(canvas, state, { placeOf, choose, move, onDrop });
  listenToKeys(canvas, state, { choose, move, onDrop, onTask });
  const resizing = new ResizeObserver(redraw);
  resizing.observe(host);
  onThemeChange(() => {
    redraw();
    if (state.answer !== null) drawSigns(signs, pictureOf(state).site);
  });
  return {
    show(answer, policy) {
      const fresh = state.answer === null;
      Object.assign(state, { answer, policy });
      // Later responses move nothing: a dragged item follows the pointer.
      if (fresh) {
        state.stations = answer.stations_m.map((point) => [...point]);
        state.users = answer.users_m.map((point) => [...point]);
        fillPick(pick, state);
        drawSigns(signs, pictureOf(state).site);
      }
      redraw();
    },
    places: () => ({ stations: state.stations, users: state.users }),
    forget() {
      state.answer = null;
      choose(null);
    },
    destroy: () => resizing.disconnect(),
  };
}

function describe(state) {
  const { answer, policy, chosen } = state;
  const index = numberOf(chosen);
  const [x, y] = pointOf(state, chosen).map(Math.round);
  if (chosen.startsWith("s")) {
    const users = policy.station?.flatMap((station, user) => (station === index ? [user] : [])) ?? [];
    const serves = users.length ? `users ${users.join(", ")}` : "nobody";
    const tasks = answer.station_tasks[index].join(", ");
    return `Station ${index} at ${x}, ${y} m runs tasks ${tasks} and serves ${serves}.`;
  }
  const rates = answer.links.alone_bps[index].map((rate, station) => {
    const able = answer.station_tasks[station].includes(answer.tasks[index]);
    const why = answer.links.feasible[index][station] ? "" : able ? " (too slow)" : " (does not run its task)";
    return `S${station} ${quantity(rate, "bit/s")}${why}`;
  });
  const about = `User ${index} at ${x}, ${y} m: task ${answer.tasks[index]}, ${answer.samples[index]} samples.`;
  return `${about} Rates if it were alone: ${rates.join(", ")}.`;
}

function fillPick(pick, { stations, users }) {
  const option = (kind, noun) => (_, index) => h("option", { value: `${kind}${index}` }, `${noun} ${index}`);
  pick.replaceChildren(
    h("option", { value: "" }, "nothing"), ...stations.map(option("s", "Station")), ...users.map(option("u", "User")),
  );
}

function listenToPointer(canvas, state, { placeOf, choose, move, onDrop }) {
  canvas.addEventListener("pointerdown", (event) => {
    if (state.answer === null) return;
    const place = placeOf();
    const name = nearest(state, place, event.offsetX, event.offsetY);
    choose(name);
    if (name === null) return;
    const [left, top] = pixels(place)(pointOf(state, name));
    state.drag = { name, right: left - event.offsetX, down: top - event.offsetY, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (state.answer === null) return;
    const place = placeOf();
    if (state.drag === null) {
      canvas.classList.toggle("near", nearest(state, place, event.offsetX, event.offsetY) !== null);
      return;
    }
    const { name, right, down } = state.drag;
    state.drag.moved = true;
    move(name, ...metres(place, event.offsetX + right, event.offsetY + down));
  });
  const drop = () => {
    const moved = state.drag?.moved;
    state.drag = null;
    if (moved) onDrop();
  };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  // Touching a station or user drags it; elsewhere it scrolls the page.
  canvas.addEventListener("touchstart", (event) => {
    if (state.drag !== null) event.preventDefault();
  }, { passive: false });
}

function listenToKeys(canvas, state, { choose, move, onDrop, onTask }) {
  let drop = null;
  canvas.addEventListener("keydown", (event) => {
    if (state.answer === null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") choose(null);
    if (state.chosen === null) return;
    if (event.key.toLowerCase() === "t" && state.chosen.startsWith("u")) onTask(numberOf(state.chosen));
    if (!(event.key in MOVES)) return;
    event.preventDefault();
    const [right, up] = MOVES[event.key];
    const step = STEP_M * (event.shiftKey ? 5 : 1);
    const [x, y] = pointOf(state, state.chosen);
    move(state.chosen, x + step * right, y + step * up);
    // The other policies are requested once the keyboard is idle.
    clearTimeout(drop);
    drop = setTimeout(onDrop, 300);
  });
}

function nearest(state, place, x, y) {
  const at = pixels(place);
  let [best, least] = [null, NEAR];
  for (const [kind, points] of [["s", state.stations], ["u", state.users]]) {
    points.forEach((point, index) => {
      const [left, top] = at(point);
      const distance = Math.hypot(left - x, top - y);
      if (distance < least) [best, least] = [`${kind}${index}`, distance];
    });
  }
  return best;
}

/** Points in metres projected onto the canvas, in CSS pixels. */
function pixels({ left, top, corner, scale, area }) {
  return ([x, y]) => [left + (x - corner.x) * scale, top + area.height - (y - corner.y) * scale];
}

function metres({ left, top, corner, scale, area }, x, y) {
  return [corner.x + (x - left) / scale, corner.y + (top + area.height - y) / scale];
}

function listOf(state, name) {
  return name.startsWith("s") ? state.stations : state.users;
}

function pointOf(state, name) {
  return listOf(state, name)[numberOf(name)];
}

function numberOf(name) {
  return Number(name.slice(1));
}
