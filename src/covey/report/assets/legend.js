/* What the signs on the map mean, as a list beside it. */

import { addCross, addShape, addStation, prepare } from "./canvas.js";
import { hasGroups } from "./frames.js";
import { groupColours, onThemeChange, theme } from "./theme.js";

const NAMED_TASKS = 12;

/** Fill a list element with the signs of the map. */
export function drawLegend(list, site) {
  const paint = () => list.replaceChildren(...entries(site, theme()).map(([text, sign]) => entry(text, sign)));
  paint();
  onThemeChange(paint);
}

function entry(text, sign) {
  const item = document.createElement("li");
  const canvas = item.appendChild(document.createElement("canvas"));
  canvas.setAttribute("aria-hidden", "true");
  sign(prepare(canvas, 24, 18));
  item.append(` ${text}`);
  return item;
}

function entries(site, colours) {
  const groups = groupColours(site, colours);
  const tasks = site.matched.slice(0, NAMED_TASKS).map((group, task) => [
    `task ${task}${groupOf(site, group)}`,
    (context) => shape(context, group, groups[group], colours.ink),
  ]);
  const more = site.tasks - tasks.length;
  if (more > 0) tasks.push([`and ${more} more tasks`, () => {}]);
  return [
    ...tasks,
    ["served (filled)", (context) => shape(context, 0, colours.muted, colours.ink)],
    ["not served (hollow)", (context) => shape(context, 0, colours.page, colours.muted)],
    ...(hasGroups(site) ? [["wrong identity (ring)", (context) => ring(context, colours.ink)]] : []),
    ["violating (cross)", (context) => cross(context, colours.alarm)],
    ["station", (context) => station(context, colours.ink)],
  ];
}

function groupOf(site, group) {
  if (!hasGroups(site)) return "";
  return group < site.group_count ? `, matched with group ${group}` : ", no group";
}

function shape(context, group, fill, stroke) {
  context.beginPath();
  addShape(context, group, 12, 9, 5.5);
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = stroke;
  context.lineWidth = 1.2;
  context.stroke();
}

function ring(context, colour) {
  context.beginPath();
  context.arc(12, 9, 7.5, 0, 2 * Math.PI);
  context.strokeStyle = colour;
  context.lineWidth = 1.6;
  context.stroke();
}

function cross(context, colour) {
  context.beginPath();
  addCross(context, 12, 9, 6);
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.stroke();
}

function station(context, colour) {
  context.beginPath();
  addStation(context, 12, 9, 8);
  context.fillStyle = colour;
  context.fill();
}
