/* The plots of a run, as `draw` of curves.js takes them. Columns are explained in docs/metrics.md. */

import { hasGroups } from "./frames.js";
import { groupColours } from "./theme.js";
import { prefixOf } from "./words.js";

/** Above this many, lines share one legend entry. */
const NAMED_LINES = 12;
/** Up to this many users have a line or bar with their index. */
const NAMED_USERS = 40;

const DASHES = [undefined, [8, 4], [2, 3], [10, 3, 2, 3]];

/** All plots of a run over its rounds, by name, for data as covey/report/page_data.py describes. */
export function runPanels(data, colours) {
  const panels = allPanels(data, colours);
  return Object.fromEntries(Object.entries(panels).map(([name, panel]) => [name, isEmpty(panel) ? UNKNOWN : panel]));
}

/** Whether a plot has no values, as when real devices report neither losses nor accuracies. */
function isEmpty({ lines }) {
  return lines !== undefined && lines.every(({ values }) => values.every((value) => value === null));
}

function allPanels(data, colours) {
  const { series } = data;
  const all = hasGroups(data.site) ? undefined : "loss";
  return {
    loss: byGroup(data, colours, "group_loss", { yLabel: "loss per sample", all }),
    accuracy: withReferences(data, colours, byGroup(data, colours, "group_accuracy", { share: true, all: "accuracy" })),
    task_loss: byTask(data, colours, "task_loss", { yLabel: "loss per sample" }),
    task_accuracy: byTask(data, colours, "task_accuracy", { share: true }),
    identities: {
      ...overRounds(series),
      range: (low) => [Math.min(0, low) - 0.02, 1.02],
      lines: [
        { label: "right identities", values: series.clustering_accuracy, colour: colours.accent, shape: 0 },
        {
          label: "adjusted Rand index", values: series.adjusted_rand_index, colour: colours.second, dash: [3, 3],
          shape: 1,
        },
      ],
    },
    privacy: privacyOverRounds(data, colours),
    clipping: {
      ...overRounds(series),
      share: true,
      lines: [{ label: "gradients cut", values: series.clipped_fraction, colour: colours.accent, kind: "area" }],
    },
    service: {
      ...overRounds(series, "users"),
      whole: true,
      lines: [
        { label: "served", values: series.served, colour: colours.stack[1], kind: "bar" },
        { label: "chosen", values: series.selected, colour: colours.ink, width: 1.5 },
        { label: "violating", values: series.violators, colour: colours.alarm, dash: [4, 3], shape: 3 },
      ],
    },
    violations: violationsByKind(data, colours),
    delay: stack(series, "s", [
      ["uplink_s", "uplink"], ["compute_s", "computing"], ["downlink_s", "downlink"],
    ], colours),
    energy: stack(series, "J", [
      ["transmit_energy_j", "users sending"], ["compute_energy_j", "users computing"], ["station_energy_j", "stations"],
    ], colours),
  };
}

/** Epsilon spent by every user after the round of a frame, next to its budget. */
export function spentPanel(data, frame, colours) {
  const { site, frames } = data;
  if (site.privacy.unlimited) return { message: UNLIMITED };
  const last = frames[frames.length - 1].epsilon;
  const { budget } = site.privacy;
  const few = site.users <= NAMED_USERS;
  const order = Array.from(frame.epsilon, (_, user) => user);
  if (!few) order.sort((first, second) => frame.epsilon[second] - frame.epsilon[first] || first - second);
  const lines = [{
    label: "epsilon spent", values: order.map((user) => frame.epsilon[user]), colour: colours.stack[1],
    kind: few ? "bar" : "area",
  }];
  if (budget) {
    lines.push({ label: "budget", values: order.map((user) => budget[user]), colour: colours.alarm, kind: "points" });
  }
  return {
    x: order.map((_, index) => index + (few ? 0 : 1)),
    xLabel: few ? "user" : "users, most spent first",
    yLabel: "epsilon",
    // The same height in all rounds, so that moving through them shows how spending grows.
    top: Math.max(largest(last), budget ? largest(budget) : 0),
    lines,
  };
}

/** Colours of the kinds of violations, distinguishable on light and dark pages. */
export function kindColours(colours) {
  return colours.dark
    ? ["#8ab8ff", "#ffb74d", "#4fc3a1", "#f3a5d3", "#ff9d92"]
    : ["#0b57b0", "#9a6700", "#00795a", "#a8417f", "#b3261e"];
}

const UNKNOWN = { message: "Not known: devices told nothing about it." };
const UNLIMITED = "Unlimited: uploads left without noise.";

function overRounds(series, yLabel = undefined) {
  return { x: series.round, xLabel: "round", yLabel };
}

function lineOf(data, colours, values, group, label, count) {
  const named = count <= NAMED_LINES;
  return {
    label: named ? label : `each of ${count}`,
    values,
    colour: groupColours(data.site, colours)[group],
    dash: named ? DASHES[Math.floor(group / 2) % 4] : undefined,
    shape: named ? group : undefined,
    width: named ? 2 : 1,
    key: named ? undefined : false,
  };
}

/** One line per true group, starting with the initial value if known. */
function byGroup(data, colours, column, { yLabel, share, all }) {
  const before = data.start[all ?? "loss"] === undefined ? null : data.start[column];
  const lines = !hasGroups(data.site) ? [] : data.series[column].map((values, group) => {
    const whole = before ? [before[group], ...values] : values;
    return lineOf(data, colours, whole, group, `group ${group}`, data.site.group_count);
  });
  if (all) {
    const values = before ? [data.start[all], ...data.series[all]] : data.series[all];
    lines.push({ label: "all", values, colour: colours.ink, dash: [6, 4], width: 2.5 });
  }
  return { x: before ? [0, ...data.series.round] : data.series.round, xLabel: "round", yLabel, share, lines };
}

/** Add what accuracy is read against: guessing, and a central model where one was trained. */
export function withReferences({ series }, colours, plot) {
  const known = [["majority", "most frequent class", [2, 3]], ["central", "central model", [10, 3, 2, 3]]]
    .filter(([name]) => series[name]?.some((value) => value !== null));
  const lines = known.map(([name, label, dash]) => {
    const missing = plot.x.length - series[name].length;
    const values = [...series[name].slice(0, 1).filter(() => missing > 0), ...series[name]];
    return { label, values, colour: colours.alarm, dash, width: 2 };
  });
  const { personal_accuracy: personal } = series;
  if (personal?.some((value) => value !== null)) {
    const before = new Array(plot.x.length - personal.length).fill(null);
    lines.push({ label: "personal models", values: [...before, ...personal], colour: colours.second, width: 2.5 });
  }
  return { ...plot, lines: [...plot.lines, ...lines] };
}

/** One line per task, with gaps in rounds in which no user announced it. */
function byTask(data, colours, column, { yLabel, share }) {
  const lines = data.series[column].map((values, task) =>
    lineOf(data, colours, values, data.site.matched[task], `task ${task}`, data.site.tasks),
  );
  return { ...overRounds(data.series, yLabel), share, lines };
}

function violationsByKind({ series, site }, colours) {
  if (!series.violators.some((users) => users > 0)) return { message: "No rule was broken in any round." };
  return {
    ...overRounds(series, "users"),
    whole: true,
    stacked: true,
    lines: site.kinds.map(([name, label], kind) => ({
      label, values: series[name], colour: kindColours(colours)[kind], kind: "bar",
    })),
  };
}

function privacyOverRounds({ site, frames }, colours) {
  if (site.privacy.unlimited) return { message: UNLIMITED };
  const x = frames.map((frame) => frame.round);
  const spent = frames.map((frame) => frame.epsilon);
  const lines = [];
  if (site.users <= NAMED_USERS) {
    for (let user = 0; user < site.users; user += 1) {
      const values = spent.map((epsilons) => epsilons[user]);
      lines.push({ label: `user ${user}`, values, colour: colours.muted, width: 1, alpha: 0.6, key: false });
    }
  }
  lines.push(
    { label: "largest", values: spent.map(largest), colour: colours.second, shape: 0 },
    { label: "mean", values: spent.map(mean), colour: colours.accent, dash: [8, 4], shape: 1 },
  );
  const { budget } = site.privacy;
  if (budget?.some((value) => value !== null)) {
    // A user without a limit has null.
    const limits = budget.filter((value) => value !== null);
    const least = limits.reduce((lowest, value) => Math.min(lowest, value), Infinity);
    const label = limits.length === budget.length && least === largest(limits) ? "budget" : "smallest budget";
    lines.push({ label, values: x.map(() => least), colour: colours.alarm, dash: [2, 3], width: 2 });
  }
  return { x, xLabel: "round", yLabel: "epsilon", lines };
}

/** Maximum of a list of any length; Math.max(...values) overflows the stack on long ones. */
function largest(values) {
  return values.reduce((highest, value) => Math.max(highest, value), 0);
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Parts of a whole as stacked bars, with the SI prefix of the largest. */
function stack(series, unit, parts, colours) {
  const totals = series.round.map((_, at) => parts.reduce((sum, [name]) => sum + (series[name][at] ?? 0), 0));
  const [size, prefix] = prefixOf(largest(totals));
  const lines = parts.map(([name, label], part) => ({
    label, values: series[name].map((value) => (value === null ? null : value / size)), colour: colours.stack[part],
    kind: "bar",
  }));
  return { ...overRounds(series, `${prefix}${unit}`), stacked: true, lines };
}
