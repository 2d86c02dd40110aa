# %% [markdown]
# # A policy of your own against the references
#
# A policy is a function: it gets an `Observation` of the network and returns which users each station selects.
# Selections that violate a constraint are dropped and counted, so a simple policy is easy to write. Evaluating it takes
# many layouts, not one run.
#
# Run this file with `python examples/own_policy.py`.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import covey
from covey.association import get_policy
from covey.evaluation import compare, mean_interval

OUT = Path("runs/examples")
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The policy
#
# Round robin over tasks: first the user of each task with the strongest link to a station that can run it, then the
# second of each task, and so on, as long as the station has blocks left. In contrast, `greedy` maximises the number of
# samples, whichever task they belong to.


# %%
def fair_turns(observation: covey.Observation, rng: np.random.Generator) -> np.ndarray:
    """(B, U) bool: round robin over tasks, strongest links first."""
    stations, users = observation.eligible.shape
    chosen = np.zeros((stations, users), dtype=bool)
    gains = np.where(observation.eligible.T, observation.gains, 0.0)  # (U, B), 0 if not eligible
    best = gains.argmax(axis=1)
    by_strength = np.argsort(-gains.max(axis=1))
    place = np.zeros(users, dtype=int)  # rank within its task
    for task in np.unique(observation.identities):
        members = by_strength[observation.identities[by_strength] == task]
        place[members] = np.arange(len(members))
    for user in by_strength[np.argsort(place[by_strength], kind="stable")]:
        station = best[user]
        if gains[user, station] > 0 and chosen[station].sum() < observation.blocks:
            chosen[station, user] = True
    return chosen


# %% [markdown]
# ## The same, made feasible
#
# `fair_turns` considers only the strongest link. Links in the same block interfere, and broadcasts must fit in the
# downlink. covey itself applies `project` to every selection: it keeps the users that can be served. A policy may call
# it first.


# %%
def checked_turns(observation: covey.Observation, rng: np.random.Generator) -> np.ndarray:
    """(B, U) bool: the feasible part of `fair_turns`."""
    stations = len(observation.capable)
    plan = observation.project(fair_turns(observation, rng))
    return plan.station == np.arange(stations)[:, None]


# %% [markdown]
# ## Evaluate them
#
# All policies play the same layouts, so differences can be paired. `learning="surrogate"` takes microseconds a round;
# `learning="real"` trains the models in every round and is authoritative.

# %%
scenario = covey.load_scenario("quick")
policies = {name: get_policy(name) for name in ("random", "nearest", "greedy", "local_search")}
policies |= {"fair_turns": fair_turns, "checked_turns": checked_turns}
comparison = compare(scenario, policies, seeds=range(10))
for result in comparison.results:
    print(
        f"{result.policy:>13}: reward {result.reward.mean():8.0f}, {result.violators.mean():4.1f} violating users,"
        f" {result.served.mean():4.1f} served per round"
    )

# %% [markdown]
# ## What it costs, and what it breaks
#
# The reward is minus loss and leakage, minus a penalty that is quadratic in the number of violating users. The two
# parts are plotted separately: a policy can look good on the left because it pays on the right.

# %%
names = [result.policy for result in comparison.results]
costs = [mean_interval(-result.without_penalty) for result in comparison.results]
broken = [mean_interval(result.violators) for result in comparison.results]
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
titles = ("loss and leakage of an episode", "violating users in an episode")
for axes, values, title, colour in zip(panels, (costs, broken), titles, ("#2f6db3", "#d1731f"), strict=True):
    errors = [[v.value - v.low for v in values], [v.high - v.value for v in values]]
    axes.barh(names, [v.value for v in values], xerr=errors, color=colour, ecolor="#444444", capsize=3)
    axes.set(xlabel=title + " (lower is better)", xlim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
panels[0].invert_yaxis()
figure.suptitle(f"Means over {len(comparison.seeds)} layouts with 95 % intervals", fontsize=10)
figure.savefig(OUT / "own_policy.png", dpi=110)
print(f"wrote {OUT / 'own_policy.png'}")

# %% [markdown]
# ## Is the difference real?
#
# If the interval contains 0, these layouts show no significant difference.

# %%
for reference in ("random", "greedy"):
    difference = comparison.relative("checked_turns", reference)
    print(
        f"checked_turns against {reference}: {difference.value:+.1f} % of its reward"
        f" [{difference.low:+.1f}, {difference.high:+.1f}]"
    )
