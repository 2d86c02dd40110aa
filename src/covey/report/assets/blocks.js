/* The uplink of one round: which user holds which block of which station. */

import { prepare } from "./canvas.js";
import { FONT, groupColours, inkOn, theme } from "./theme.js";
import { quantity } from "./words.js";

const LEFT = 40;
const TOP = 40;

/**
 * Draw the block grid: a row per station, a column per block, coloured by task.
 *
 * data: { site, frame } as covey/report/page_data.py describes. options: width in CSS pixels; selected: a
 * user to highlight, or null; colours: a theme.
 */
export function draw(canvas, data, options = {}) {
  const { site, frame } = data;
  const colours = options.colours ?? theme();
  const groups = groupColours(site, colours);
  const cell = cellSize(site, options.width ?? 640);
  const rows = site.stations_m.length;
  const context = prepare(canvas, LEFT + site.blocks * cell.width + 2, TOP + rows * cell.height + 2);
  const digits = String(site.users - 1).length;
  drawHeads(context, site, cell, colours);
  context.fillStyle = colours.free;
  for (let row = 0; row < rows; row += 1) {
    for (let block = 0; block < site.blocks; block += 1) fillCell(context, row, block, cell);
  }
  frame.served.forEach((user, index) => {
    const [row, block] = [frame.station[index], frame.block[index]];
    const fill = groups[site.matched[frame.identity[user]]] ?? colours.muted;
    context.fillStyle = fill;
    fillCell(context, row, block, cell);
    context.fillStyle = inkOn(fill);
    write(context, row, block, cell, linesOf(frame, index, cell, digits));
    if (user === options.selected) outline(context, row, block, cell, colours);
  });
}

function cellSize(site, width) {
  const rows = site.stations_m.length;
  const wide = Math.min(150, (width - LEFT - 2) / site.blocks);
  const roomy = wide >= 96 ? 40 : 26;
  return { width: wide, height: Math.max(12, Math.min(roomy, 560 / rows)), gap: wide < 14 || rows > 30 ? 1 : 2 };
}

function fillCell(context, row, block, cell) {
  const { width, height, gap } = cell;
  context.fillRect(LEFT + block * width, TOP + row * height, Math.max(1, width - gap), Math.max(1, height - gap));
}

function outline(context, row, block, cell, colours) {
  context.strokeStyle = colours.accent;
  context.lineWidth = 3;
  const inset = 1.5;
  context.strokeRect(
    LEFT + block * cell.width + inset, TOP + row * cell.height + inset,
    cell.width - cell.gap - 2 * inset, cell.height - cell.gap - 2 * inset,
  );
}

/** The longest label that fits all cells: user, task and rate; the user index, up to `digits` digits; or nothing. */
function linesOf(frame, index, cell, digits) {
  const user = frame.served[index];
  if (cell.width >= 96 && cell.height >= 34) {
    const task = frame.identity[user] >= 0 ? `, task ${frame.identity[user]}` : "";
    return [`user ${user}${task}`, quantity(frame.rate_bps[index], "bit/s")];
  }
  return cell.width >= 9 + 7 * digits && cell.height >= 15 ? [String(user)] : [];
}

function write(context, row, block, cell, lines) {
  context.font = `12px ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const x = LEFT + (block + 0.5) * cell.width - cell.gap / 2;
  const y = TOP + (row + 0.5) * cell.height - cell.gap / 2;
  lines.forEach((line, index) => context.fillText(line, x, y + 14 * (index - (lines.length - 1) / 2)));
}

function drawHeads(context, site, cell, colours) {
  context.font = `12px ${FONT}`;
  context.fillStyle = colours.muted;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText("block", LEFT, 10);
  context.textAlign = "center";
  const columns = Math.ceil(24 / cell.width);
  for (let block = 0; block < site.blocks; block += columns) {
    context.fillText(String(block), LEFT + (block + 0.5) * cell.width, 28);
  }
  context.textAlign = "right";
  const step = Math.ceil(15 / cell.height);
  for (let row = 0; row < site.stations_m.length; row += step) {
    context.fillText(`S${row}`, LEFT - 8, TOP + (row + 0.5) * cell.height - 1);
  }
}
