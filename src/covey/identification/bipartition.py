"""`bipartition`: users share a model until their steps cancel out, then the task is split in two (Sattler's CFL)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from covey.identification.heard import Heard, heard_steps
from covey.identification.products import Products, debiased_products, shrink_lengths
from covey.identification.rule import (
    Bools,
    Floats,
    Identification,
    Ints,
    Memory,
    Offer,
    Regrouped,
    Rule,
    RuleRound,
    Trained,
)

#: A task is split when its mean step is shorter than this share of its users' steps; 1 where all want the same, and
#: 1 / sqrt(m) with m equal groups that want different things.
_CANCELLING = 0.8
#: Steps are still large: longer than this share of the longest so far, and so many times the noise of a product.
_LARGE, _SIGNAL = 0.5, 3.0
_VALUES, _VARIANCE, _TIMES, _OPEN, _LONGEST = "cfl_values", "cfl_variance", "cfl_times", "cfl_open", "cfl_longest"


class Bipartition(Rule):
    """One model for all at first; a task whose users' steps are large but cancel out is split by their cosines.

    Products of steps are debiased and added up over the rounds in which two users had the same task. The split is the
    one whose largest similarity across is smallest; the smaller part takes a free model, a copy. Users that were not
    heard before a split stay, and join the part to which their next step is more similar. Nothing is announced, and
    nothing is ever merged.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"single_uploads", "fresh_steps"})
    grows: ClassVar[bool] = True  # every split takes a model into use
    paper: ClassVar[str] = "CFL (Sattler, Mueller, Samek 2020, arXiv 1910.01991)"
    computes: ClassVar[str] = "nothing beyond its local step"
    air: ClassVar[str] = "nothing more"
    limits: ClassVar[str] = "splits nothing where the noise of a product exceeds a squared step; users never heard stay"
    sees: ClassVar[str] = "stations see every single noised upload and tell users their task"
    costs: ClassVar[str] = "nothing beyond the uploads"
    suits: ClassVar[str] = (
        "groups whose gradients point different ways, and an unknown number of them. Not where noise exceeds single"
        " steps (all stay together), nor under masks; a wrong split is never undone"
    )

    def start(self, users: int, tasks: int, truth: Ints, rng: np.random.Generator) -> Ints:
        """Task 0 for everybody, (U,)."""
        return np.zeros(users, dtype=np.int64)

    def find(self, at: RuleRound) -> Identification:
        """Nothing is announced: stations told users their task after the last round."""
        return at.kept()

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Regrouped:
        """Late users join a part; then every task that should be is split, as long as models are free."""
        heard = heard_steps(at, found, trained)
        identities = found.identities.copy()
        memory = _added(at, heard)
        _join(heard, at.samples, identities, memory[_OPEN])
        models, movements = trained.models.copy(), trained.movements.copy()
        fresh, offers = np.zeros(at.tasks, dtype=bool), []
        for task in np.unique(identities).tolist():
            free = np.setdiff1d(np.arange(at.tasks), identities)
            members = np.flatnonzero((identities == task) & (np.diag(memory[_TIMES]) > 0))
            parts, gain = _split(memory, members)
            if len(free) == 0 or parts is None:
                continue
            sizes = [at.samples[members[parts == part]].sum() for part in (False, True)]
            leaving, new = members[parts == (sizes[1] <= sizes[0])], int(free[0])
            waiting = (identities == task) & (np.diag(memory[_TIMES]) == 0)
            memory[_OPEN][:, new] = memory[_OPEN][:, task]
            memory[_OPEN][np.ix_(waiting, [task, new])] = True
            identities[leaving] = new
            models[new], movements[new], fresh[new] = models[task], movements[task], True
            offers.append(Offer(at.round, new, task, tuple(leaving.tolist()), "evidence", gain))
        return Regrouped(identities, memory, models, movements, fresh=fresh, offers=tuple(offers))


def _added(at: RuleRound, heard: Heard) -> dict[str, np.ndarray]:
    """The memory with this round's products of users of the same task."""
    users = at.users
    memory = {
        _VALUES: np.zeros((users, users)),
        _VARIANCE: np.zeros((users, users)),
        _TIMES: np.zeros((users, users), dtype=np.int64),
        _OPEN: np.zeros((users, at.tasks), dtype=bool),
        _LONGEST: np.zeros(1),
    }
    memory |= {name: array.copy() for name, array in at.memory.items() if name in memory}
    for task in np.unique(heard.tasks).tolist():
        part = heard.of(task)
        products, pairs = debiased_products(part.steps, part.noise_std), np.ix_(part.users, part.users)
        memory[_VALUES][pairs] += products.values
        memory[_VARIANCE][pairs] += products.variance
        memory[_TIMES][pairs] += 1
    return memory


def _split(memory: Memory, members: Ints) -> tuple[Bools | None, float]:
    """(n,) part of each of the `members` (n,), None where they stay together, and the gain in units of its noise.

    Keeps book of the longest steps so far.
    """
    if len(members) < 2:
        return None, 0.0
    pairs = np.ix_(members, members)
    times = memory[_TIMES][pairs]
    known = np.maximum(times, 1)
    products = Products(memory[_VALUES][pairs] / known, memory[_VARIANCE][pairs] / known**2)
    values, together = shrink_lengths(products), times > 0
    length = float(np.diag(values).mean())
    others = together & ~np.eye(len(members), dtype=bool)
    if not others.any():
        return None, 0.0
    noise = math.sqrt(float(products.variance[others].mean()))
    if length <= _SIGNAL * noise:
        return None, 0.0
    memory[_LONGEST][0] = max(float(memory[_LONGEST][0]), length)
    mean = float(values[together].mean())
    large = length > _LARGE**2 * float(memory[_LONGEST][0])
    if not large or mean >= _CANCELLING**2 * length:
        return None, 0.0
    lengths = np.sqrt(np.maximum(np.diag(values), 0.1 * length))
    cosines = np.where(together, values / np.outer(lengths, lengths), -np.inf)
    return bipartition(cosines), (length - mean) / noise if noise > 0 else math.inf


def bipartition(similarity: Floats) -> Bools:
    """(n,) the part of each of n users that leaves the smallest largest similarity between two users of both parts.

    similarity: (n, n) symmetric; -inf for pairs of which nothing is known. Users are joined along the most similar
    pairs until two parts are left; no other two parts are less similar where they are most similar.
    """
    users = len(similarity)
    part = np.arange(users)
    rows, columns = np.triu_indices(users, 1)
    order = np.argsort(-similarity[rows, columns], kind="stable")
    left = users
    for a, b in zip(rows[order], columns[order], strict=True):
        if left == 2:
            break
        if part[a] != part[b]:
            part[part == part[b]] = part[a]
            left -= 1
    return np.asarray(part != part[0])


def _join(heard: Heard, samples: Ints, identities: Ints, undecided: Bools) -> None:
    """Give users heard for the first time since a split, rows of `undecided` (U, K), the task whose step is most alike.

    Changes `identities` and `undecided` in place. A user's own step is not compared with itself.
    """
    waiting = undecided[heard.users].any(axis=1)
    settled = ~waiting
    if not (waiting.any() and settled.any()):
        return
    steps, weights = heard.steps.astype(np.float64), samples[heard.users].astype(np.float64)
    for row in np.flatnonzero(waiting):
        user = heard.users[row]
        best, best_cosine = -1, -math.inf
        for task in np.flatnonzero(undecided[user]):
            rows = np.flatnonzero(settled & (heard.tasks == task))
            if len(rows) == 0:
                continue
            share = weights[rows] / weights[rows].sum()
            mean = share @ steps[rows]
            square = float(mean @ mean) - float((share**2 * heard.noise_std[rows] ** 2).sum()) * steps.shape[1]
            cosine = float(steps[row] @ mean) / math.sqrt(max(square, 0.1 * float(mean @ mean), 1e-300))
            if cosine > best_cosine:
                best, best_cosine = int(task), cosine
        if best >= 0:
            identities[user] = best
            undecided[user] = False
