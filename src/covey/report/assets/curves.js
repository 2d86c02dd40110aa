/* Curves and bars over rounds or epochs, with a legend that can be operated by keyboard. Needs uPlot. */

import { addShape } from "./canvas.js";
import { makeKeys } from "./keys.js";
import { FONT, theme } from "./theme.js";
import { number, percent } from "./words.js";

const HEIGHT = 240;
const POWERS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
const STEPS = POWERS.flatMap((power) => [power, 2 * power, 5 * power]);

/**
 * Draw a plot into a host element and return its controls.
 *
 * plot: { x: numbers, xLabel, yLabel, share: whether y is a fraction, whole: whether y is an integer,
 * compressed: whether large values are compressed, top: minimum of the upper y limit, range: (low,
 * high) => [low, high], stacked: whether bars are stacked, message: text instead of a plot, lines }.
 * lines: a list of { label, values, colour, dash, width, alpha, shape: index of a group marker, kind:
 * "line" | "bar" | "area" | "step" | "points", key: false to leave it out of the legend, gaps: true to
 * connect across missing values }.
 * options: colours: a theme; label: alt text; onChoose: called with the clicked x.
 *
 * Returns { mark(x): highlight an x and show its values, update(plot): replace the values of the same
 * lines, destroy() }.
 */
export function draw(host, plot, options = {}) {
  const colours = options.colours ?? theme();
  host.replaceChildren();
  if (plot.message) return messageOnly(host, plot.message);
  const holder = host.appendChild(document.createElement("div"));
  holder.className = "plot-area";
  holder.setAttribute("role", "img");
  holder.setAttribute("aria-label", options.label ?? plot.lines.map((line) => line.label).join(", "));
  const state = { plot, colours, marked: null, hovered: null, hidden: new Set(), keys: null };
  state.keys = makeKeys(host, plot.lines, colours, (index, show) => toggle(chart, state, index, show));
  const chart = new globalThis.uPlot(chartOptions(state, holder.clientWidth), dataOf(state), holder);
  // uPlot swallows the click that ends a drag.
  chart.over.addEventListener("click", () => {
    const { idx } = chart.cursor;
    if (options.onChoose && idx !== null && idx !== undefined) options.onChoose(state.plot.x[idx]);
  });
  const resizing = new ResizeObserver(() => {
    if (holder.clientWidth > 0) chart.setSize({ width: holder.clientWidth, height: HEIGHT });
  });
  resizing.observe(holder);
  return {
    mark(x) {
      state.marked = x;
      chart.redraw(false, false);
      showValues(state);
    },
    update(next) {
      state.plot = next;
      chart.setData(dataOf(state));
      showValues(state);
    },
    destroy() {
      resizing.disconnect();
      chart.destroy();
      host.replaceChildren();
    },
  };
}

function messageOnly(host, message) {
  const text = host.appendChild(document.createElement("p"));
  text.className = "plot-message";
  text.textContent = message;
  return { mark() {}, update() {}, destroy: () => host.replaceChildren() };
}

/** Columns in uPlot's format. Stacked bars are cumulative sums, largest first, so that smaller ones cover them. */
function dataOf({ plot, hidden }) {
  if (!plot.stacked) return [plot.x, ...plot.lines.map((line) => line.values)];
  const below = plot.x.map(() => 0);
  const sums = plot.lines.map((line, part) =>
    line.values.map((value, index) => {
      if (!hidden.has(part)) below[index] += value ?? 0;
      return below[index];
    }),
  );
  return [plot.x, ...sums.reverse()];
}

function toggle(chart, state, index, show) {
  if (show) state.hidden.delete(index);
  else state.hidden.add(index);
  const { stacked, lines } = state.plot;
  chart.setSeries(stacked ? lines.length - index : index + 1, { show });
  if (stacked) chart.setData(dataOf(state));
}

function chartOptions(state, width) {
  const { plot, colours } = state;
  const axis = {
    stroke: colours.ink, font: `12px ${FONT}`, labelFont: `12px ${FONT}`, labelSize: 18, labelGap: 0,
    grid: { stroke: colours.line, width: 1 }, ticks: { stroke: colours.line, width: 1, size: 4 },
  };
  const bars = plot.lines.some((line) => line.kind === "bar");
  const series = plot.lines.map((line) => seriesOf(line, plot, colours));
  return {
    width: Math.max(width, 200),
    height: HEIGHT,
    padding: [10, 12, 0, 0],
    legend: { show: false },
    cursor: {
      y: false, drag: { x: true, y: false, dist: 8 }, points: { size: 7, fill: colours.page },
    },
    scales: {
      x: { time: false, range: (_, low, high) => sideways(low, high, bars) },
      y: yScale(plot),
    },
    axes: [
      { ...axis, label: plot.xLabel, incrs: STEPS, size: 28, grid: { show: false } },
      {
        ...axis, label: plot.yLabel, size: axisWidth, incrs: plot.whole ? STEPS : undefined,
        splits: plot.compressed ? powersBetween : undefined,
        values: (_, splits) => splits.map((value) => tick(value, plot)),
      },
    ],
    series: [{}, ...(plot.stacked ? series.reverse() : series)],
    hooks: {
      draw: [(chart) => drawMark(chart, state)],
      setCursor: [(chart) => follow(chart, state)],
    },
  };
}

function seriesOf(line, plot, colours) {
  const { paths } = globalThis.uPlot;
  const kinds = {
    bar: paths.bars({ size: [0.82, 60] }),
    step: paths.stepped({ align: 1 }),
    points: () => null,
  };
  const filled = line.kind === "bar" || line.kind === "area";
  return {
    label: line.label,
    stroke: line.kind === "bar" ? colours.page : line.colour,
    fill: filled ? (line.kind === "area" ? `${line.colour}40` : line.colour) : undefined,
    width: line.kind === "bar" ? (plot.x.length > 60 ? 0 : 0.5) : (line.width ?? 2),
    dash: line.dash,
    alpha: line.alpha ?? 1,
    spanGaps: Boolean(line.gaps),
    paths: kinds[line.kind],
    points: pointsOf(line, plot, colours),
  };
}

function pointsOf(line, plot, colours) {
  if (line.kind === "points") return { show: true, size: plot.x.length > 60 ? 3 : 7, fill: line.colour, space: 0 };
  if (line.kind === "bar" || line.kind === "step" || line.key === false) return { show: false };
  // A line with a single point is invisible without a marker.
  if (line.shape === undefined) return { show: plot.x.length === 1, size: 5, fill: line.colour };
  return { show: (chart, index, first, last) => drawShapes(chart, index, first, last, line, colours) };
}

/** About ten group markers along a line. */
function drawShapes(chart, index, first, last, line, colours) {
  const [x, y] = [chart.data[0], chart.data[index]];
  const known = [];
  for (let at = first; at <= last; at += 1) {
    if (y[at] !== null && y[at] !== undefined) known.push(at);
  }
  const step = Math.max(1, Math.round(known.length / 11));
  const ratio = globalThis.devicePixelRatio || 1;
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.beginPath();
  for (let place = 0; place < known.length; place += step) {
    const [right, down] = [chart.valToPos(x[known[place]], "x", true), chart.valToPos(y[known[place]], "y", true)];
    // Unlike lines, markers are not clipped: one outside the plot would cover the tick labels.
    const inside = down >= bbox.top - 1 && down <= bbox.top + bbox.height + 1;
    if (inside) addShape(ctx, line.shape, right, down, 3.6 * ratio);
  }
  ctx.fillStyle = line.colour;
  ctx.strokeStyle = colours.page;
  ctx.lineWidth = ratio;
  ctx.fill();
  ctx.stroke();
  ctx.restore();
}

function sideways(low, high, bars) {
  const room = bars ? 0.6 : Math.max(0.4, 0.02 * (high - low));
  return [low - room, high + room];
}

function yScale(plot) {
  if (plot.share) return { range: (_, low) => [Math.min(0, low ?? 0) - 0.02, 1.02] };
  const range = (_, low, high) => {
    if (low === null || low === undefined) return [0, 1];
    if (plot.range) return plot.range(low, high);
    const top = Math.max(high, plot.top ?? 0);
    return [Math.min(0, low * 1.05), top > 0 ? top * 1.06 : low < 0 ? 0 : 1];
  };
  return plot.compressed ? { distr: 4, asinh: 1, range } : { range };
}

function powersBetween(_, __, low, high) {
  return [0, ...POWERS].filter((power) => power >= low && power <= high);
}

/** Width of the longest y tick label. */
function axisWidth(_, values) {
  const longest = Math.max(0, ...(values ?? []).map((text) => String(text).length));
  return Math.max(36, 16 + 7 * longest);
}

function tick(value, plot) {
  if (value === null) return "";
  if (plot.share) return value > 1 || value < -1 ? "" : `${Math.round(100 * value)} %`;
  if (Math.abs(value) >= 1e5) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
}

function drawMark(chart, { marked, colours }) {
  if (marked === null) return;
  const { ctx, bbox } = chart;
  const x = Math.round(chart.valToPos(marked, "x", true)) + 0.5;
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  const ratio = globalThis.devicePixelRatio || 1;
  ctx.save();
  ctx.strokeStyle = colours.ink;
  ctx.lineWidth = ratio;
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

function follow(chart, state) {
  const { idx, left } = chart.cursor;
  state.hovered = left >= 0 && idx !== null && idx !== undefined ? idx : null;
  showValues(state);
}

function shown(value, plot) {
  if (plot.share) return percent(value);
  return plot.whole && value !== null ? value.toLocaleString("en") : number(value);
}

function showValues({ plot, keys, marked, hovered }) {
  // uPlot fires setCursor once during construction.
  if (keys === null) return;
  const index = hovered ?? (marked === null ? -1 : plot.x.indexOf(marked));
  keys.forEach(({ line, output }) => {
    const value = index >= 0 ? plot.lines[line].values[index] : undefined;
    output.textContent = value === undefined ? "" : shown(value, plot);
  });
}
