# %% [markdown]
# # A first run and its curves
#
# Twelve users hold handwritten digits of four different mixes. Nobody knows who holds which mix. Four stations serve
# the users over a shared uplink and train four models; users find the model that suits them on the way.
#
# Run this file with `python examples/first_run.py`, or open it as a notebook in an editor that supports `# %%` cells.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import covey

OUT = Path("runs/examples")
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Play it
#
# A scenario says what the network, the data, the noise and the training are. A preset is a scenario that ships with
# covey; single keys can be changed. A policy decides in every round which station serves which users.

# %%
scenario = covey.load_scenario("quick", ["training.rounds=20"])
history = covey.simulate(scenario, policy="greedy", seed=0)
print(f"{len(history.samples)} users with {history.samples.min()} to {history.samples.max()} samples each")

# %% [markdown]
# ## Look at it
#
# Every number of a round is a column; docs/metrics.md explains them all. `clustering_accuracy` is the share of users
# whose model is that of their group, `epsilon_max` the largest epsilon any user has spent.

# %%
rounds = history.column("round")
epsilon = history.column("epsilon_max")
for shown in (0, len(rounds) // 2, len(rounds) - 1):
    print(
        f"round {rounds[shown]:2d}: accuracy {history.column('accuracy')[shown]:.2f},"
        f" users in the right group {history.column('clustering_accuracy')[shown]:.0%},"
        f" served {history.column('served')[shown]}, epsilon {epsilon[shown]:.1f}"
    )

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot(rounds, history.column("accuracy"), label="test accuracy", color="#2f6db3")
left.plot(rounds, history.column("clustering_accuracy"), label="users in the right group", color="#d1731f", ls="--")
left.set(xlabel="round", ylabel="share", ylim=(0, 1.03), title="Learning")
left.legend(loc="lower right", frameon=False)
right.plot(rounds, epsilon, color="#7a4fa3")
right.set(xlabel="round", ylabel="epsilon", ylim=(0, None), title="Spent by the user who spent most")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.get_major_locator().set_params(integer=True)
figure.savefig(OUT / "first_run.png", dpi=110)
print(f"wrote {OUT / 'first_run.png'}")

# %% [markdown]
# ## Who was served, and who was not
#
# Served users contribute to the model and spend privacy. A user at the cell edge may never be served and still gets
# a model: that of the group it identified.

# %%
served = (history.user_column("station") >= 0).sum(axis=0)  # rounds in which each user was served
accuracy = history.user_column("accuracy")[-1]
for user in np.argsort(-served):
    bar = "#" * int(served[user])
    print(f"user {user:2d} {bar:<{len(rounds)}} {served[user]:2d} rounds, accuracy {accuracy[user]:.2f}")
