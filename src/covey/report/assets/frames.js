/* What the frames of a run say: positions, right and wrong identities, sentences. See covey/report/page_data.py. */

import { count, number, percent, quantity } from "./words.js";

/** Frames with the positions filled in that were left out because nobody had moved. */
export function fillPositions(frames, before = null) {
  let last = before;
  return frames.map((frame) => {
    last = frame.x_dm ? frame : { ...frame, x_dm: last.x_dm, y_dm: last.y_dm };
    return last;
  });
}

/** Whether both the group and the task of a user are known, so that it can be judged. */
export function isJudged(site, frame, user) {
  return site.groups[user] >= 0 && frame.identity[user] >= 0;
}

/** Whether the announced task of a user is known not to belong to its group. */
export function isWrong(site, frame, user) {
  return isJudged(site, frame, user) && frame.matched[frame.identity[user]] !== site.groups[user];
}

/** Whether true groups are known at all. */
export function hasGroups(site) {
  return site.groups.some((group) => group >= 0);
}

/** Users by true group (rows) and announced task (columns). */
export function confusion(site, frame) {
  const counts = Array.from({ length: site.group_count }, () => new Array(site.tasks).fill(0));
  frame.identity.forEach((task, user) => {
    if (isJudged(site, frame, user)) counts[site.groups[user]][task] += 1;
  });
  return counts;
}

/** Names of the rules in a bit mask. */
export function kindsOf(site, flags) {
  return site.kinds.filter((_, bit) => flags & (1 << bit)).map(([, , words]) => words);
}

/** One round in a sentence. `series` are columns over all rounds, of which round 1 is the first. */
export function describeRound(site, frame, series) {
  const at = frame.round - 1;
  const users = site.users.toLocaleString("en");
  const told = (name, show) => (series[name][at] === null ? [] : [show(series[name][at])]);
  const facts = [
    `${frame.served.length.toLocaleString("en")} of ${users} users served`,
    count(frame.violators.length, "violating user"),
    ...told("clustering_accuracy", (share) => `${percent(share)} right identities`),
    ...told("accuracy", (share) => `accuracy ${percent(share)}`),
    ...told("loss", (loss) => `loss ${number(loss)}`),
    `delay ${quantity(series.delay_s[at], "s")}`,
  ];
  return `${facts.join(", ")}.`;
}

/** One user in one round in a few sentences. */
export function describeUser(site, frame, user) {
  const judged = isJudged(site, frame, user) ? ` (${isWrong(site, frame, user) ? "wrong" : "right"})` : "";
  const known = (index) => (index >= 0 ? String(index) : "not known");
  const parts = [
    `User ${user}: group ${known(site.groups[user])}, task ${known(frame.identity[user])}${judged},` +
      ` ${site.samples[user].toLocaleString("en")} samples.`,
  ];
  const index = frame.served.indexOf(user);
  if (index >= 0) {
    const rate = quantity(frame.rate_bps[index], "bit/s");
    parts.push(`Served by station ${frame.station[index]} on block ${frame.block[index]} at ${rate}.`);
  } else {
    parts.push("Not served.");
  }
  const violation = frame.violators.indexOf(user);
  if (violation >= 0) parts.push(`Broke a rule: ${kindsOf(site, frame.flags[violation]).join("; ")}.`);
  if (frame.epsilon) {
    const budget = site.privacy.budget?.[user] ?? null;
    const limit = budget === null ? "" : ` of ${number(budget)}`;
    parts.push(`Epsilon spent: ${number(frame.epsilon[user])}${limit}.`);
  }
  return parts.join(" ");
}

/** The confusion of a round as text: one sentence per group. */
export function describeConfusion(site, frame) {
  if (!hasGroups(site)) return "The true groups are not known.";
  const rows = confusion(site, frame).map((row, group) => {
    const found = row.flatMap((users, task) => (users ? [`${users} in task ${task}`] : []));
    return `Group ${group}: ${found.join(", ") || "no users"}.`;
  });
  return rows.join(" ");
}

/** The block grid of a round as text. */
export function describeBlocks(site, frame) {
  const held = site.stations_m.map(() => 0);
  frame.station.forEach((station) => {
    held[station] += 1;
  });
  return held.map((blocks, station) => `Station ${station}: ${blocks} of ${site.blocks} blocks in use.`).join(" ");
}
