# %% [markdown]
# # Noise, epsilon and accuracy
#
# More noise protects the samples better and slows learning. One run per noise level measures this trade-off for a
# scenario. `privacy.v_max` caps the mean variance of a task's noise, and covey makes the noise as
# large as the cap allows.
#
# Run this file with `python examples/noise_and_epsilon.py`.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import covey
from covey.privacy.planning import Releases, solve

OUT = Path("runs/examples")
OUT.mkdir(parents=True, exist_ok=True)
SEEDS = (0, 1)

# %% [markdown]
# ## Before any run: what would it cost?
#
# Of rounds, noise, epsilon and delta, any three determine the fourth. Noise is added to the sum of clipped gradients.

# %%
for noise_std in (2.0, 4.0, 8.0):
    plan = solve(Releases(clip=1.0), rounds=15, noise_std=noise_std, delta=1e-5)
    print(f"15 uploads with noise {noise_std:.0f} on the sum cost epsilon {plan.epsilon:.1f}")

# %% [markdown]
# ## Then run it, at every level
#
# The noise floor, `privacy.n_min`, is lowered so that only the cap matters.


# %%
def play(seed: int, *changes: str) -> covey.History:
    return covey.simulate(covey.load_scenario("quick", changes), policy="greedy", seed=seed)


caps = np.array([12.0, 48.0, 192.0, 768.0, 3072.0, 12288.0])
runs = [[play(seed, f"privacy.v_max={cap}", "privacy.n_min=1.0") for seed in SEEDS] for cap in caps]
epsilon = np.array([[run.ledger.epsilon().max() for run in level] for level in runs])  # (levels, seeds)
accuracy = np.array([[run.column("accuracy")[-1] for run in level] for level in runs])
free = np.mean([play(seed, "privacy.noise=off").column("accuracy")[-1] for seed in SEEDS])
for cap, spent, right in zip(caps, epsilon.mean(axis=1), accuracy.mean(axis=1), strict=True):
    print(f"v_max {cap:5.0f}: epsilon {spent:5.1f}, accuracy {right:.2f}")
print(f"no noise, no guarantee: accuracy {free:.2f}")

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
axes.plot(epsilon, accuracy, "o", color="#9fbfe3", markersize=5)
axes.plot(epsilon.mean(axis=1), accuracy.mean(axis=1), "o-", color="#2f6db3", label=f"mean of {len(SEEDS)} seeds")
axes.axhline(free, color="#555555", ls="--", label="no noise, no guarantee")
axes.set(
    xscale="log", xlabel="epsilon of the user who spent most (lower is safer)", ylabel="test accuracy", ylim=(0, 1)
)
ticks = [0.5, 1, 2, 5, 10, 20]
axes.set_xticks(ticks, [str(tick) for tick in ticks])
axes.xaxis.minorticks_off()
axes.legend(loc="lower right", frameon=False)
axes.spines[["top", "right"]].set_visible(False)
figure.savefig(OUT / "noise_and_epsilon.png", dpi=110)
print(f"wrote {OUT / 'noise_and_epsilon.png'}")

# %% [markdown]
# ## A budget
#
# A user that has exhausted its budget no longer uploads, and the ledger records the refusals.

# %%
budget = play(0, "privacy.budget_epsilon=3.0")
print(f"largest epsilon {budget.ledger.epsilon('zcdp').max():.2f} of 3 (zcdp, by which budgets stop)")
print(f"users served in the first round {budget.column('served')[0]}, in the last {budget.column('served')[-1]}")
for note in budget.notes:
    print("-", note)
