"""`from_release`: tasks are worked out from the user's last noised upload, at no further cost."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.announcement import Announcement
from covey.identification.rule import Floats, Identification, Ints, RuleRound, Trained
from covey.identification.start import models_in_play


class FromRelease(Announcement):
    """Users that uploaded compare what they sent with how the models moved; all others keep their task."""

    paper: ClassVar[str] = "covey's own: post-processing of releases"
    computes: ClassVar[str] = "nothing: its last noised step is compared with the models' paths"
    sees: ClassVar[str] = "whoever works out the task sees the user's noised upload, which was sent anyway"
    costs: ClassVar[str] = "0"
    air: ClassVar[str] = "none"
    suits: ClassVar[str] = "charges that must not grow; users that are served often"
    limits: ClassVar[str] = (
        "users that are seldom served keep a wrong task; noise of many weights; masked uploads of real devices"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"released_steps", "fresh_steps"})
    note: ClassVar[str] = "Identities were computed from noised uploads alone, which costs nothing beyond the uploads."
    words: ClassVar[str] = "from noised uploads, at no further cost"

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Ints:
        """(U,) tasks for the next round, where it is one in which tasks may change."""
        intake, identities = trained.intake, found.identities
        rows = np.flatnonzero(trained.joined[intake.users])
        users = intake.users[rows]
        next_identities = identities.copy()
        if len(users) and self.rule.announces(at.round + 1):
            task = identities[users]
            in_play = models_in_play(at.memory, at.tasks)
            next_identities[users] = released_identities(
                intake.weights[rows] - at.models[task],
                task,
                at.samples[users],
                # A model that was never sent has no path, though its place may hold a copy that was not there at first.
                np.where(in_play[:, None], trained.models - trained.first_models, np.float32(0)),
                trained.totals,
            )
        return next_identities

    def scored(self, samples: Ints) -> Ints:
        """None: the step has been computed anyway."""
        return 0 * samples


def released_identities(
    steps: npt.NDArray[np.floating], task: Ints, samples: Ints, paths: npt.NDArray[np.floating], totals: Floats
) -> Ints:
    """The task of each user, (n,), whose model has gone most in the direction of the user's own last noised step.

    steps: (n, D) what each user uploaded, less the model of its `task` (n,) that it started from; paths: (K, D) from
    the first to the newest weights of the models, the last steps having been averaged over totals[k] samples (K,).
    The whole path counts, because noise averages out along it. A user takes its own last step out of its task's path,
    which would otherwise resemble its noise. Users for whom no model has moved keep their task. Nothing is used that
    was not released or broadcast, so that this costs no privacy.
    """
    step, path = steps.astype(np.float64), paths.astype(np.float64)
    rows = np.arange(len(steps))
    size, share = (step**2).sum(axis=1), samples / totals[task]
    products = step @ path.T
    lengths = np.broadcast_to((path**2).sum(axis=1), products.shape).copy()
    inner = products[rows, task]
    products[rows, task] = inner - share * size
    lengths[rows, task] = np.maximum(lengths[rows, task] - 2 * share * inner + share**2 * size, 0.0)
    # Rounding leaves a little of a path that was the user's alone.
    known = lengths > 1e-12 * size[:, None]
    cosines = np.divide(products, np.sqrt(lengths), out=np.full(products.shape, -np.inf), where=known)
    return np.where(known.any(axis=1), cosines.argmax(axis=1), task)
