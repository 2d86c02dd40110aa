/* The page of a run: one slider drives map, block grid, confusion matrix and the marker in every plot. */

import { draw as drawBlocks } from "./blocks.js";
import { draw as drawConfusion } from "./confusion.js";
import { describeBlocks, describeConfusion, describeRound, fillPositions, hasGroups } from "./frames.js";
import { drawLegend } from "./legend.js";
import { makeMap } from "./map_view.js";
import { runPanels, spentPanel } from "./panels.js";
import { makePlayer } from "./player.js";
import { makePlots } from "./plots.js";
import { onThemeChange, theme } from "./theme.js";

/** Initialise the page. */
export function showRun(data) {
  const frames = fillPositions(data.frames);
  if (frames.length === 0) return;
  const { site } = data;
  const state = { frame: frames[frames.length - 1], selected: null };
  const grids = makeGrids(site, state);
  const map = makeMap(byId("map"), site, {
    onSelect: (user) => {
      state.selected = user;
      grids.redraw();
    },
  });
  drawLegend(byId("legend"), site);
  const filled = { ...data, frames };
  const plots = makePlots(
    (colours) => ({ ...runPanels(filled, colours), spent: spentPanel(filled, state.frame, colours) }),
    { onChoose: (round) => player.chooseValue(round), own: ["spent"] },
  );
  const player = makePlayer(byId("player"), {
    values: frames.map((frame) => frame.round),
    noun: "round",
    total: data.planned,
    onChange: (index, round) => {
      state.frame = frames[index];
      map.show(state.frame);
      grids.redraw();
      byId("facts").textContent = describeRound(site, state.frame, data.series);
      plots.mark(round);
      plots.refresh("spent", () => spentPanel(filled, state.frame, theme()));
    },
  });
  player.choose(frames.length - 1);
}

/** The block grid and the confusion matrix of the selected round. */
function makeGrids(site, state) {
  const grids = [{ canvas: addCanvas("blocks"), draw: drawBlocks, describe: describeBlocks, most: 900 }];
  if (hasGroups(site)) {
    grids.push({ canvas: addCanvas("confusion"), draw: drawConfusion, describe: describeConfusion, most: 560 });
  } else {
    byId("confusion").textContent = describeConfusion(site, state.frame);
  }
  const redraw = () => {
    grids.forEach(({ canvas, draw, describe, most }) => {
      const width = Math.min(most, canvas.parentElement.clientWidth);
      if (width === 0) return;
      draw(canvas, { site, frame: state.frame }, { width, selected: state.selected });
      canvas.setAttribute("aria-label", `Round ${state.frame.round}. ${describe(site, state.frame)}`);
    });
  };
  const resizing = new ResizeObserver(redraw);
  grids.forEach(({ canvas }) => resizing.observe(canvas.parentElement));
  onThemeChange(redraw);
  return { redraw };
}

function addCanvas(id) {
  const canvas = byId(id).appendChild(document.createElement("canvas"));
  canvas.setAttribute("role", "img");
  return canvas;
}

function byId(id) {
  return document.getElementById(id);
}
