/* The interactive map: select a user, zoom and pan with mouse, touch or keyboard. */

import { describeUser } from "./frames.js";
import { draw, layout, pick } from "./map.js";
import { onThemeChange } from "./theme.js";

const KEYS = "Arrow keys go from user to user, plus and minus zoom, 0 shows the whole map, Escape lets go.";
const MOST = 16;

/**
 * Build the map into a host element. onSelect(user or null) is called when the selection changes.
 *
 * Returns { show(frame): draw a round, redraw() }.
 */
export function makeMap(host, site, { onSelect = () => {} } = {}) {
  const canvas = document.createElement("canvas");
  const details = document.createElement("p");
  const state = { frame: null, selected: null, view: wholeMap(site), from: null };
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", `Map of ${site.stations_m.length} stations and ${site.users} users. ${KEYS}`);
  details.className = "details";
  details.setAttribute("aria-live", "polite");

  const options = () => ({
    width: host.clientWidth, maxHeight: Math.max(320, 0.72 * globalThis.innerHeight), view: state.view,
    selected: state.selected,
  });
  const redraw = () => {
    if (state.frame === null || host.clientWidth === 0) return;
    draw(canvas, { site, frame: state.frame }, options());
    details.textContent = state.selected === null
      ? `Pick a user to read about it. ${KEYS}`
      : describeUser(site, state.frame, state.selected);
  };
  const select = (user) => {
    state.selected = user;
    if (user !== null && state.view.zoom > 1) centreOn(state, user);
    redraw();
    onSelect(user);
  };
  const zoom = (factor) => {
    state.view.zoom = Math.min(MOST, Math.max(1, state.view.zoom * factor));
    if (state.view.zoom === 1) state.view = wholeMap(site);
    else if (state.selected !== null) centreOn(state, state.selected);
    // Dragging pans a zoomed map; otherwise it scrolls the page.
    canvas.classList.toggle("zoomed", state.view.zoom > 1);
    redraw();
  };
  host.append(zoomButtons(zoom), canvas, details);
  listenToPointer(canvas, state, { site, options, select, redraw });
  listenToKeys(canvas, state, { site, select, zoom });
  new ResizeObserver(redraw).observe(host);
  onThemeChange(redraw);
  return {
    redraw,
    show(frame) {
      state.frame = frame;
      redraw();
    },
  };
}

function wholeMap(site) {
  return { zoom: 1, x: site.area_m[0] / 2, y: site.area_m[1] / 2 };
}

function centreOn(state, user) {
  state.view.x = state.frame.x_dm[user] / 10;
  state.view.y = state.frame.y_dm[user] / 10;
}

function zoomButtons(zoom) {
  const box = document.createElement("div");
  box.className = "zoom";
  const choices = [["+", "Zoom in", 2], ["\u2212", "Zoom out", 0.5], ["Whole map", "Whole map", 0]];
  for (const [text, name, factor] of choices) {
    const button = box.appendChild(document.createElement("button"));
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", name);
    button.addEventListener("click", () => zoom(factor));
  }
  return box;
}

function listenToPointer(canvas, state, { site, options, select, redraw }) {
  canvas.addEventListener("pointerdown", (event) => {
    state.from = { x: event.offsetX, y: event.offsetY, view: { ...state.view }, moved: false };
    if (state.view.zoom > 1) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (state.from === null || state.view.zoom === 1) return;
    const [right, down] = [event.offsetX - state.from.x, event.offsetY - state.from.y];
    if (Math.hypot(right, down) > 4) state.from.moved = true;
    const { scale, area, corner } = layout(site, { ...options(), view: state.from.view });
    const middle = { x: corner.x + area.width / scale / 2, y: corner.y + area.height / scale / 2 };
    state.view.x = middle.x - right / scale;
    state.view.y = middle.y + down / scale;
    redraw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const dragged = state.from?.moved;
    state.from = null;
    if (!dragged) select(pick({ site, frame: state.frame }, options(), event.offsetX, event.offsetY));
  });
  canvas.addEventListener("pointercancel", () => {
    state.from = null;
  });
}

function listenToKeys(canvas, state, { site, select, zoom }) {
  const step = (by) => {
    const from = state.selected ?? (by > 0 ? -1 : site.users);
    select((from + by + site.users) % site.users);
  };
  const actions = {
    ArrowRight: () => step(1), ArrowDown: () => step(1), ArrowLeft: () => step(-1), ArrowUp: () => step(-1),
    "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), 0: () => zoom(0), Escape: () => select(null),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in actions) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  });
}
