/* The page of a training: plots over epochs, and a slider that shows their values. */

import { kindColours } from "./panels.js";
import { makePlayer } from "./player.js";
import { makePlots } from "./plots.js";

/** Initialise the page. */
export function showTraining(data) {
  const { epoch } = data.series;
  if (epoch.length === 0) return;
  const plots = makePlots((colours) => trainingPanels(data, colours), {
    onChoose: (chosen) => player.chooseValue(chosen),
  });
  const player = makePlayer(document.getElementById("player"), {
    values: epoch,
    noun: "epoch",
    total: data.planned,
    still: true,
    onChange: (_, chosen) => plots.mark(chosen),
  });
  player.choose(epoch.length - 1);
}

/** The plots of a training by name, for data as covey/report/training_data.py describes. */
export function trainingPanels({ series, kinds }, colours) {
  const over = { x: series.epoch, xLabel: "epoch" };
  const alone = { colour: colours.second, shape: 1, gaps: true };
  const guarded = { colour: colours.accent, shape: 0, gaps: true };
  return {
    reward: {
      ...over,
      yLabel: "reward of an episode",
      range: () => rewardRange(series),
      lines: [
        { label: "exploring", values: series.reward, colour: colours.muted, width: 1 },
        {
          label: "exploring, without penalty", values: series.reward_without_penalty, colour: colours.ink, width: 1.5,
          dash: [4, 3],
        },
        { label: "validation, alone", values: series.alone_reward, ...alone },
        { label: "validation, guarded", values: series.guarded_reward, ...guarded },
      ],
    },
    violations: {
      ...over,
      yLabel: "users in an episode",
      compressed: Math.max(...series.violators) > 20,
      lines: [
        { label: "all", values: series.violators, colour: colours.ink, width: 2.5 },
        ...kinds.flatMap(([name, label], kind) => {
          if (!series[name].some((users) => users > 0)) return [];
          return [{ label, values: series[name], colour: kindColours(colours)[kind], shape: kind, width: 1.5 }];
        }),
      ],
    },
    validation_violations: {
      ...over,
      yLabel: "users in a round",
      lines: [
        { label: "alone", values: series.alone_violators, ...alone },
        { label: "guarded", values: series.guarded_violators, ...guarded },
      ],
    },
    served: {
      ...over, yLabel: "users in a round", lines: [{ label: "served", values: series.served, colour: colours.accent }],
    },
    loss: { ...over, yLabel: "squared error", lines: [{ label: "loss", values: series.loss, colour: colours.second }] },
    epsilon: {
      ...over,
      share: true,
      lines: [
        { label: "explored choices", values: series.epsilon, colour: colours.accent },
        { label: "rounds with a violation", values: series.violating_rounds, colour: colours.alarm, dash: [4, 3] },
      ],
    },
  };
}

/** Early violations cost hundreds of thousands; the axis covers the range after they become rare. */
function rewardRange(series) {
  const calm = series.alone_reward.filter((_, at) => series.alone_violators[at] === 0);
  const shown = [...series.reward_without_penalty, ...series.guarded_reward, ...calm]
    .filter((value) => value !== null)
    .sort((first, second) => first - second);
  const [low, high] = [shown[Math.floor(0.02 * (shown.length - 1))], shown[shown.length - 1]];
  return [low - 0.15 * (high - low) - 1, high + 0.1 * (high - low) + 1];
}
