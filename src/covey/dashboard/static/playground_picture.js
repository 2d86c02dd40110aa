/* What the playground draws: the network as the map of reports takes it, marks of the chosen one, and the signs. */

import { addCross, addShape, addStation, prepare } from "/assets/canvas.js";
import { groupColours, theme } from "/assets/theme.js";
import { h } from "./dom.js";

/** Site and frame of the policy that is shown, with stations and users where they are now. */
export function pictureOf({ answer, policy, stations, users }) {
  const numbers = users.map((_, user) => user);
  const served = numbers.filter((user) => (policy.station?.[user] ?? -1) >= 0);
  const broken = numbers.filter((user) => (policy.violation?.[user] ?? 0) > 0);
  const matched = Array.from({ length: answer.task_count }, (_, task) => task);
  return {
    site: {
      area_m: answer.area_m, stations_m: stations, cells_m: answer.cells_m, users: users.length,
      tasks: answer.task_count, group_count: answer.task_count, blocks: answer.blocks, groups: answer.tasks,
      samples: answer.samples, matched, colours: answer.colours, kinds: answer.kinds,
    },
    frame: {
      round: 1, x_dm: users.map(([x]) => 10 * x), y_dm: users.map(([, y]) => 10 * y), identity: answer.tasks, matched,
      served, station: served.map((user) => policy.station[user]), block: served.map((user) => policy.block[user]),
      violators: broken, flags: broken.map((user) => policy.violation[user]),
    },
  };
}

/** A ring around a chosen station, or from a chosen user a line to every station: dashed where it could be served. */
export function drawChosen(canvas, { answer, stations }, user, at, point) {
  const context = canvas.getContext("2d");
  const here = at(point);
  context.save();
  context.strokeStyle = theme().accent;
  if (user === null) {
    context.lineWidth = 3;
    context.beginPath();
    context.arc(...here, 16, 0, 2 * Math.PI);
    context.stroke();
  } else {
    stations.forEach((station, index) => {
      const able = answer.links.feasible[user][index];
      context.globalAlpha = able ? 0.9 : 0.4;
      context.lineWidth = able ? 1.5 : 1;
      context.setLineDash(able ? [6, 4] : [1, 5]);
      context.beginPath();
      context.moveTo(...here);
      context.lineTo(...at(station));
      context.stroke();
    });
  }
  context.restore();
}

/** Fill a list with what the signs on the map mean. */
export function drawSigns(list, site) {
  const colours = theme();
  const groups = groupColours(site, colours);
  const shape = (task, fill, stroke) => (context) => {
    context.beginPath();
    addShape(context, task, 12, 9, 5.5);
    paint(context, fill, stroke);
  };
  const tasks = groups.map((colour, task) => [`task ${task}`, shape(task, colour, colours.ink)]);
  const signs = [
    ...tasks,
    ["served (filled)", shape(0, colours.muted, colours.ink)],
    ["not served (hollow)", shape(0, colours.page, colours.muted)],
    ["breaks a rule", (context) => {
      context.beginPath();
      addCross(context, 12, 9, 6);
      context.lineWidth = 2;
      context.strokeStyle = colours.alarm;
      context.stroke();
    }],
    ["station", (context) => {
      context.beginPath();
      addStation(context, 12, 9, 8);
      context.fillStyle = colours.ink;
      context.fill();
    }],
    ["possible link of the picked user", line(colours, [6, 4])],
    ["impossible link", line(colours, [1, 5])],
  ];
  list.replaceChildren(...signs.map(([text, sign]) => {
    const canvas = h("canvas", { "aria-hidden": "true" });
    sign(prepare(canvas, 24, 18));
    return h("li", {}, canvas, ` ${text}`);
  }));
}

function paint(context, fill, stroke) {
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = stroke;
  context.lineWidth = 1.2;
  context.stroke();
}

function line(colours, dash) {
  return (context) => {
    context.setLineDash(dash);
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(0, 9);
    context.lineTo(24, 9);
    context.stroke();
    context.setLineDash([]);
  };
}
