/* The map of one round: cells, stations, users coloured by task, links to the stations that serve them. */

import { addCross, addShape, addStation, prepare } from "./canvas.js";
import { isWrong } from "./frames.js";
import { FONT, groupColours, theme } from "./theme.js";

/** Up to this many visible users are numbered, and their links labelled with the block. */
const LABELLED_USERS = 40;
const MARGIN = 18;
const FOOT = 26;

/**
 * Draw a round.
 *
 * data: { site, frame } as covey/report/page_data.py describes, with positions.
 * options: width and maxHeight in CSS pixels; selected: a user to highlight, or null;
 * view: { zoom, x, y }, x and y being the centre in metres; colours: a theme.
 */
export function draw(canvas, data, options = {}) {
  const colours = options.colours ?? theme();
  const place = layout(data.site, options);
  const context = prepare(canvas, place.width, place.height);
  const style = { colours, groups: groupColours(data.site, colours), radius: userRadius(data.site, place) };
  context.save();
  clipToArea(context, place);
  drawCells(context, data.site, place, colours);
  drawLinks(context, data, place, style);
  drawUsers(context, data, place, style);
  drawMarks(context, data, place, style, options.selected ?? null);
  drawStations(context, data, place, style);
  const near = inSight(data, place);
  if (near.length <= LABELLED_USERS) drawNumbers(context, data, place, style, near);
  context.restore();
  drawScale(context, place, colours);
}

/** The user nearest to a point of the canvas in CSS pixels, or null if none is close. */
export function pick(data, options, x, y) {
  const place = layout(data.site, options);
  let best = null;
  let least = 18 ** 2;
  for (let user = 0; user < data.site.users; user += 1) {
    const [left, top] = userAt(data.frame, user, place);
    const distance = (left - x) ** 2 + (top - y) ** 2;
    if (distance < least) [best, least] = [user, distance];
  }
  return best;
}

/** The projection from metres to pixels: size, pixels per metre, and the lower left corner in metres. */
export function layout(site, options = {}) {
  const [width_m, height_m] = site.area_m;
  const width = options.width ?? 640;
  const view = options.view ?? { zoom: 1, x: width_m / 2, y: height_m / 2 };
  const inner = width - 2 * MARGIN;
  const fitted = Math.min(inner / width_m, ((options.maxHeight ?? 560) - MARGIN - FOOT) / height_m);
  const area = { width: width_m * fitted, height: height_m * fitted };
  const scale = fitted * view.zoom;
  // When zoomed in, the viewport stays inside the area.
  const half = { x: area.width / scale / 2, y: area.height / scale / 2 };
  const middle = {
    x: Math.min(Math.max(view.x, half.x), width_m - half.x),
    y: Math.min(Math.max(view.y, half.y), height_m - half.y),
  };
  return {
    width, height: area.height + MARGIN + FOOT, scale, area,
    left: (width - area.width) / 2, top: MARGIN, corner: { x: middle.x - half.x, y: middle.y - half.y },
    zoom: view.zoom,
  };
}

function at(place, x_m, y_m) {
  return [
    place.left + (x_m - place.corner.x) * place.scale,
    place.top + place.area.height - (y_m - place.corner.y) * place.scale,
  ];
}

function userAt(frame, user, place) {
  return at(place, frame.x_dm[user] / 10, frame.y_dm[user] / 10);
}

function userRadius(site, place) {
  const size = Math.max(2.2, Math.min(7, 6.4 * (12 / site.users) ** 0.24 * Math.sqrt(place.zoom)));
  return size * Math.max(0.8, Math.min(1, place.area.width / 560));
}

/** Users inside the viewport. */
function inSight({ site, frame }, place) {
  return Array.from({ length: site.users }, (_, user) => user).filter((user) => {
    const [x, y] = userAt(frame, user, place);
    const [right, down] = [x - place.left, y - place.top];
    return right >= -1 && right <= place.area.width + 1 && down >= -1 && down <= place.area.height + 1;
  });
}

function clipToArea(context, place) {
  // Markers at the border are not clipped.
  context.beginPath();
  const room = MARGIN - 2;
  context.rect(place.left - room, place.top - room, place.area.width + 2 * room, place.area.height + 2 * room);
  context.clip();
}

function drawCells(context, site, place, colours) {
  context.lineWidth = 1;
  context.strokeStyle = colours.border;
  site.cells_m.forEach((corners, index) => {
    context.beginPath();
    corners.forEach(([x, y], corner) => {
      if (corner) context.lineTo(...at(place, x, y));
      else context.moveTo(...at(place, x, y));
    });
    context.closePath();
    context.fillStyle = colours.cells[index % 2];
    context.fill();
    context.stroke();
  });
}

function drawLinks(context, { site, frame }, place, { colours, groups }) {
  context.lineWidth = site.users <= LABELLED_USERS ? 2 : 1;
  context.globalAlpha = site.users <= 300 ? 0.9 : 0.6;
  byTask(frame, frame.served).forEach((users, task) => {
    context.beginPath();
    users.forEach((index) => {
      context.moveTo(...userAt(frame, frame.served[index], place));
      context.lineTo(...at(place, ...site.stations_m[frame.station[index]]));
    });
    context.strokeStyle = groups[site.matched[task]] ?? colours.muted;
    context.stroke();
  });
  context.globalAlpha = 1;
}

/** Indices into `users` by task, so that each task is painted in one path. */
function byTask(frame, users) {
  const sorted = new Map();
  users.forEach((user, index) => {
    const task = frame.identity[user];
    if (!sorted.has(task)) sorted.set(task, []);
    sorted.get(task).push(index);
  });
  return sorted;
}

function drawUsers(context, { site, frame }, place, { colours, groups, radius }) {
  const served = new Set(frame.served);
  const waiting = Array.from({ length: site.users }, (_, user) => user).filter((user) => !served.has(user));
  const small = site.users > 300;
  const paint = (users, filled) => {
    byTask(frame, users).forEach((indices, task) => {
      // An unknown task is a grey circle.
      const group = site.matched[task] ?? 0;
      const colour = task >= 0 ? groups[group] : colours.muted;
      context.beginPath();
      indices.forEach((index) => addShape(context, group, ...userAt(frame, users[index], place), radius));
      context.fillStyle = filled ? colour : colours.page;
      context.fill();
      context.strokeStyle = filled ? colours.ink : colour;
      context.lineWidth = filled ? (small ? 0.5 : 0.8) : small ? 1 : 1.8;
      context.stroke();
    });
  };
  paint(waiting, false);
  paint(frame.served, true);
}

function drawMarks(context, { site, frame }, place, { colours, radius }, selected) {
  const ring = (user, size) => {
    const [x, y] = userAt(frame, user, place);
    context.moveTo(x + size, y);
    context.arc(x, y, size, 0, 2 * Math.PI);
  };
  context.lineWidth = site.users > 300 ? 1 : 1.6;
  context.strokeStyle = colours.ink;
  context.beginPath();
  for (let user = 0; user < site.users; user += 1) {
    if (isWrong(site, frame, user)) ring(user, 1.9 * radius);
  }
  context.stroke();
  context.strokeStyle = colours.alarm;
  context.lineWidth = site.users > 300 ? 1.2 : 2;
  context.beginPath();
  frame.violators.forEach((user) => addCross(context, ...userAt(frame, user, place), 1.3 * radius));
  context.stroke();
  if (selected === null) return;
  context.strokeStyle = colours.accent;
  context.lineWidth = 3;
  context.beginPath();
  ring(selected, Math.max(10, 2.6 * radius));
  context.stroke();
}

function drawStations(context, { site }, place, { colours }) {
  const few = site.stations_m.length <= 12;
  const size = (few ? 9 : 6) * Math.max(0.65, Math.min(1, place.area.width / 480));
  context.font = `600 12px ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  site.stations_m.forEach(([x_m, y_m], station) => {
    const [x, y] = at(place, x_m, y_m);
    context.beginPath();
    addStation(context, x, y, size);
    context.fillStyle = colours.ink;
    context.strokeStyle = colours.page;
    context.lineWidth = 2;
    context.stroke();
    context.fill();
    if (few || place.area.width > 600) label(context, `S${station}`, x, y + stationLabel(y, place), colours);
  });
}

/** Offset of a station's label: below it, or above it at the lower border. */
function stationLabel(y, place) {
  return y + 22 > place.top + place.area.height ? -18 : 18;
}

/** Text with a halo in the page colour, legible over lines. */
function label(context, text, x, y, colours) {
  context.lineJoin = "round";
  context.lineWidth = 4;
  context.strokeStyle = colours.page;
  context.strokeText(text, x, y);
  context.fillStyle = colours.ink;
  context.fillText(text, x, y);
}

function drawNumbers(context, { site, frame }, place, { colours, radius }, near) {
  context.font = `12px ${FONT}`;
  const taken = site.stations_m.flatMap(([x_m, y_m]) => {
    const [x, y] = at(place, x_m, y_m);
    return [[x, y, 12], [x, y + stationLabel(y, place), 10]];
  });
  near.forEach((user) => taken.push([...userAt(frame, user, place), 1.4 * radius]));
  if (place.area.width > 400 && site.users <= LABELLED_USERS) {
    drawLinkBlocks(context, { site, frame }, place, colours, taken);
  }
  near.forEach((user) => {
    const [x, y] = userAt(frame, user, place);
    const gap = (isWrong(site, frame, user) ? 1.9 : 1.2) * radius + 8;
    const spots = [[gap, 0], [0, -gap], [-gap, 0], [0, gap], [gap, -gap], [-gap, -gap], [gap, gap], [-gap, gap]];
    const [right, down] = freest(spots, x, y, taken, place);
    taken.push([x + right, y + down, 8]);
    label(context, String(user), x + right, y + down, colours);
  });
}

/** The block label of every link, placed along it. */
function drawLinkBlocks(context, { site, frame }, place, colours, taken) {
  frame.served.forEach((user, index) => {
    const [x, y] = userAt(frame, user, place);
    const [right, down] = at(place, ...site.stations_m[frame.station[index]]);
    const spots = [0.5, 0.4, 0.6, 0.3, 0.7].map((share) => [share * (right - x), share * (down - y)]);
    const spot = freest(spots, x, y, taken, place);
    taken.push([x + spot[0], y + spot[1], 9]);
    label(context, `b${frame.block[index]}`, x + spot[0], y + spot[1], { ...colours, ink: colours.muted });
  });
}

/** The first free label position around a point, or the one with the least overlap. */
function freest(spots, x, y, taken, place) {
  const outside = (left, top) =>
    left < place.left + 4 || left > place.left + place.area.width - 4 ||
    top < place.top + 4 || top > place.top + place.area.height - 4;
  const covered = ([right, down]) =>
    taken.reduce((sum, [left, top, size]) => {
      return sum + Math.max(0, size + 8 - Math.hypot(x + right - left, y + down - top));
    }, outside(x + right, y + down) ? 100 : 0);
  return spots.reduce((best, spot) => (covered(spot) < covered(best) ? spot : best));
}

function drawScale(context, place, colours) {
  const metres = niceLength(place.area.width / place.scale / 4);
  const length = metres * place.scale;
  const y = place.height - 8;
  context.strokeStyle = colours.ink;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(place.left, y - 5);
  context.lineTo(place.left, y);
  context.lineTo(place.left + length, y);
  context.lineTo(place.left + length, y - 5);
  context.stroke();
  context.font = `12px ${FONT}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = colours.ink;
  const text = metres >= 1000 ? `${metres / 1000} km` : `${metres} m`;
  context.fillText(text, place.left + length + 6, y - 3);
}

/** The largest of 1, 2, 5, 10, 20, ... that is not above a length. */
function niceLength(length) {
  const power = 10 ** Math.floor(Math.log10(length));
  return power * [5, 2, 1].find((step) => step * power <= length);
}
