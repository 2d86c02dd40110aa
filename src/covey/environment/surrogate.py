"""A model of learning that costs microseconds: the one-step bound as a recursion, with fitted constants.

State is the loss L[g, k] of every true group g on every task's model k. Whenever task k is served, each group's loss on
it changes by what its own samples do and by what the others' do, in their shares 1 - w and w of all that trained it,
by a term for mixed company, is pushed up by the share m of the group's own samples that did not take part, and by the
noise n of the mean update:

    L <- L + (1 - w) own(L) + w other(L) + w (1 - w) mixed(L) + missing m^2 + noise n

The terms are those of the one-step bound: contraction, wrong users, missing users, noise. The bound squares w, since it
bounds the length of an error; real steps follow the mean gradient, whose effect on a loss is linear in the shares to
first order. Squared, half-mixed models look far better than they are, and policies that serve many users with them.
`own` is piecewise linear because networks first have to leave a plateau and slow down at the end; `other` and `mixed`
are linear in L. A task that nobody serves keeps its model. A user announces the task whose model seems to fit it best:
its group's losses plus an offset of its own and the error of judging by a sample, new in every round.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from covey.environment.site import Bools, Floats, Ints


@dataclass(frozen=True)
class Constants:
    """Fitted constants of the surrogate.

    start, start_std: mean and spread of the untrained models' losses; knots, own: losses and what a round of the
    group's own samples changes there, between them on straight lines and beyond them constant; other, mixed, missing,
    noise: of the recursion; floor, ceiling: the smallest and the largest loss of a group seen; offset_std: spread of a
    user's losses around its group's; judgement_std: spread of the error with which users compare their losses.
    """

    start: float
    start_std: float
    knots: tuple[float, ...]
    own: tuple[float, ...]
    other: tuple[float, float]
    mixed: tuple[float, float]
    missing: float
    noise: float
    floor: float
    ceiling: float
    offset_std: float
    judgement_std: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The constants that `to_dict` gave, also after JSON; `KeyError` or `TypeError` when they are not these."""
        lists = {name: tuple(values[name]) for name in ("knots", "own", "other", "mixed")}
        return cls(**values | lists)


def announced(losses: Floats, groups: Ints, offsets: Floats) -> Ints:
    """(N, U): the task whose model fits each user best; losses: (N, G, K), groups: (N, U), offsets: (N, U, K)."""
    own = np.take_along_axis(losses, groups[:, :, None], axis=1)
    return np.asarray((own + offsets).argmin(axis=2))


def recursion(constants: Constants, losses: Floats, wrong: Floats, missing: Floats, noise: Floats) -> Floats:
    """Losses after one served round; all arrays have the same shape, `noise` is sum std^2 / N^2 over served users."""
    own = np.interp(losses, constants.knots, constants.own)
    other = constants.other[0] + constants.other[1] * losses
    mixed = constants.mixed[0] + constants.mixed[1] * losses
    after = losses + (1.0 - wrong) * (own + wrong * mixed) + wrong * other
    after += constants.missing * missing**2 + constants.noise * noise
    return np.clip(after, constants.floor, constants.ceiling)


def learn(
    constants: Constants,
    losses: Floats,
    groups: Ints,
    identities: Ints,
    samples: Ints,
    served: Bools,
    noise_std: Floats,
) -> Floats:
    """Losses (N, G, K) of the true groups on all models after a round, from those before.

    groups, identities, samples, served, noise_std: (N, U).
    """
    wrong, missing, noise, trained = composition(groups, identities, samples, served, noise_std, losses.shape[1])
    after = recursion(constants, losses, wrong, missing, noise)
    return np.where(trained, after, losses)


def composition(
    groups: Ints, identities: Ints, samples: Ints, served: Bools, noise_std: Floats, tasks: int
) -> tuple[Floats, Floats, Floats, Bools]:
    """What trained every model, seen from every group, (N, G, K) each: the share of other groups, the share of the
    group's own samples that is missing, the noise of the mean update, and whether anybody trained it at all."""
    every = np.arange(tasks)
    member = (groups[:, None, :] == every[None, :, None]).astype(np.float64)  # (N, G, U)
    joined = ((identities[:, None, :] == every[None, :, None]) & served[:, None, :]).astype(np.float64)  # (N, K, U)
    weight = samples.astype(np.float64)
    both = (member * weight[:, None, :]) @ joined.transpose(0, 2, 1)  # (N, G, K)
    total = both.sum(axis=1)  # (N, K)
    held = member @ weight[:, :, None]  # (N, G, 1)
    noise = (joined @ (noise_std**2)[:, :, None])[:, :, 0]
    noise = np.divide(noise, total**2, out=np.zeros_like(noise), where=total > 0)
    share = np.divide(both, total[:, None, :], out=np.zeros_like(both), where=total[:, None, :] > 0)
    lacking = 1.0 - np.divide(both, held, out=np.zeros_like(both), where=held > 0)
    shape = both.shape
    return 1.0 - share, lacking, np.broadcast_to(noise[:, None, :], shape), np.broadcast_to(total[:, None] > 0, shape)
