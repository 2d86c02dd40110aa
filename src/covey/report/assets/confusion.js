/* Who announced what: users by true group and announced task in one round. */

import { prepare } from "./canvas.js";
import { confusion } from "./frames.js";
import { FONT, inkOn, theme } from "./theme.js";

const LEFT = 64;
const TOP = 44;

/**
 * Draw the table of groups (rows) and tasks (columns).
 *
 * Columns are ordered by the group that a task is matched with, and right identities are outlined, at most one
 * cell in a row; the shade is the share of the group. data: { site, frame } as covey/report/page_data.py describes.
 * options: width in CSS pixels; colours: a theme.
 */
export function draw(canvas, data, options = {}) {
  const { site, frame } = data;
  const colours = options.colours ?? theme();
  const counts = confusion(site, frame);
  const order = taskOrder(frame.matched);
  const size = Math.max(7, Math.min(64, ((options.width ?? 400) - LEFT - 4) / site.tasks));
  const height = Math.min(size, 44);
  const context = prepare(canvas, LEFT + site.tasks * size + 4, TOP + counts.length * height + 4);
  context.textBaseline = "middle";
  drawHeads(context, order, counts.length, size, height, colours);
  counts.forEach((row, group) => {
    const total = row.reduce((sum, users) => sum + users, 0) || 1;
    order.forEach((task, column) => {
      const place = { x: LEFT + column * size, y: TOP + group * height, width: size, height };
      drawCell(context, place, row[task], row[task] / total, colours);
    });
    context.strokeStyle = colours.ink;
    context.lineWidth = size > 20 ? 2 : 1;
    const right = order.findIndex((task) => frame.matched[task] === group);
    if (right < 0) return;
    context.strokeRect(LEFT + right * size + 1, TOP + group * height + 1, size - 3, height - 3);
  });
}

/** Tasks in the order of the groups they are matched with; those without a group come last. */
export function taskOrder(matched) {
  const rank = matched.map((group) => (group < 0 ? matched.length + Math.max(...matched) : group));
  return matched.map((_, task) => task).sort((first, second) => rank[first] - rank[second]);
}

function drawCell(context, { x, y, width, height }, users, share, colours) {
  const fill = mixed(colours.free, colours.accent, 0.9 * share);
  context.fillStyle = fill;
  context.fillRect(x, y, width - 1, height - 1);
  const text = String(users);
  if (!users || width < 8 + 7 * text.length || height < 14) return;
  context.font = `13px ${FONT}`;
  context.textAlign = "center";
  context.fillStyle = inkOn(fill);
  context.fillText(text, x + width / 2, y + height / 2);
}

/** A colour between two, "#rrggbb" each. */
function mixed(from, to, share) {
  const parts = [1, 3, 5].map((at) => {
    const [low, high] = [from, to].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(low + share * (high - low)).toString(16).padStart(2, "0");
  });
  return `#${parts.join("")}`;
}

function drawHeads(context, order, groups, size, height, colours) {
  context.font = `12px ${FONT}`;
  context.fillStyle = colours.muted;
  context.textAlign = "left";
  context.fillText("announced task", LEFT, 10);
  context.fillText("group", 2, 30);
  const step = Math.ceil(18 / size);
  context.textAlign = "center";
  order.forEach((task, column) => {
    if (column % step === 0) context.fillText(String(task), LEFT + (column + 0.5) * size, 30);
  });
  context.textAlign = "right";
  const rows = Math.ceil(14 / height);
  for (let group = 0; group < groups; group += rows) {
    context.fillText(String(group), LEFT - 10, TOP + (group + 0.5) * height);
  }
}
