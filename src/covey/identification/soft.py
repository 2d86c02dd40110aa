"""`soft`: a user's data may come from several tasks; it works for one of them, drawn by its share (FedEM)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.rule import Floats, ScoreRule, best_score
from covey.seeding import generator

if TYPE_CHECKING:
    from torch import Tensor

    from covey.federated.user_compute import UserCompute

_ITERATIONS = 200


class Soft(ScoreRule):
    """Users share their samples out among the models and draw the task of the round from the shares.

    Differences from FedEM: there a user trains all models, each with samples weighted by their responsibilities,
    uploads all K of them and predicts with a mixture; here it trains the model that it drew, with all samples alike,
    uploads that one, at a K-th of the cost, and predicts with it. There a user keeps its shares from round to round;
    here it finds them anew in every round, from equal ones to convergence (their likelihood is concave), so that no
    device has to remember anything and nothing about shares but the draw leaves it. With `raw`, the draw is told as it
    is. With `noisy_max`, which draws by itself, the scores are the mean responsibilities of one step from equal shares:
    they lie between 0 and 1 whatever a sample is.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"losses"})
    announcements: ClassVar[tuple[str, ...]] = ("raw", "noisy_max")
    # Forward passes only.
    passes_per_model: ClassVar[float] = 1.0 / 3.0
    paper: ClassVar[str] = "FedEM (Marfoq et al. 2021, arXiv 2108.10252)"
    computes: ClassVar[str] = "its loss on clustering.batch samples at every model"
    air: ClassVar[str] = "a task per user"
    limits: ClassVar[str] = "shares follow one batch instead of all local data, and no model is mixed from several"
    sees: ClassVar[str] = "stations see every user's task of the round; shares stay on the device"
    costs: ClassVar[str] = "one announcement of every user a round: unprotected with `raw`, charged with `noisy_max`"
    suits: ClassVar[str] = (
        "users whose data mix several tasks; finds groups about as well as `loss`, and like it may leave a model"
        " unused. Not where tasks have to be stable: users draw anew in every round"
    )

    def told(self, losses: Floats, similarity: Floats) -> npt.NDArray[Any]:
        """The task of each user, (n,), whose mean loss is smallest."""
        return best_score(losses, np.zeros_like(losses), 0.0)

    def tell(self, compute: UserCompute, users: list[int], round: int, batch: int, together: int) -> npt.NDArray[Any]:
        """The task that each of `users` draws from its shares, (n,)."""
        drawn = np.zeros(len(users), dtype=np.int64)
        for row, user in enumerate(users):
            x, y = compute.batch_of(user, round, batch, "identify_batch")
            shares = mixture_shares(model_losses(compute, x, y))
            luck = generator(compute.seed, "soft", user=user, round=round).random()
            drawn[row] = min(int(np.searchsorted(np.cumsum(shares), luck, side="right")), len(shares) - 1)
        return drawn

    def private_scores(self, compute: UserCompute, x: Tensor, y: Tensor) -> Floats:
        """(K,) mean responsibility of each task for one user's samples, with equal shares."""
        losses = model_losses(compute, x, y)
        even = np.full(losses.shape[1], 1.0 / losses.shape[1])
        return np.asarray(responsibilities(losses, even).mean(axis=0), dtype=np.float64)

    def score_width(self, *, replaced: bool) -> float:
        """1: a responsibility lies between 0 and 1."""
        return 1.0


def model_losses(compute: UserCompute, x: Tensor, y: Tensor) -> Floats:
    """(m, K) loss of each of m samples on each model."""
    # Imported here because listing and planning rules needs no torch.
    from covey.federated.models import load_flat
    from covey.federated.steps import sample_losses

    losses = []
    for weights in compute.models:
        load_flat(compute.module, weights)
        losses.append(sample_losses(compute.module, x, y)[0])
    return np.stack(losses, axis=1)


def responsibilities(losses: Floats, shares: Floats) -> Floats:
    """(m, K) how likely each of m samples comes from each task: shares (K,) times exp(-losses (m, K)), normalised.

    A loss that is not finite counts as infinite; a sample without any finite loss, or whose only possible tasks have
    no share, is shared out as all are.
    """
    with np.errstate(divide="ignore"):
        scores = np.log(shares) - np.where(np.isfinite(losses), losses, np.inf)
    top = scores.max(axis=1, keepdims=True)
    known = np.isfinite(top)
    likely = np.exp(scores - np.where(known, top, 0.0))
    total = likely.sum(axis=1, keepdims=True)
    return np.where(known, likely / np.where(known, total, 1.0), shares)


def mixture_shares(losses: Floats) -> Floats:
    """(K,) shares of the tasks under which samples with `losses` (m, K) are likeliest, by expectation maximisation."""
    shares = np.full(losses.shape[1], 1.0 / losses.shape[1])
    for _ in range(_ITERATIONS):
        before, shares = shares, responsibilities(losses, shares).mean(axis=0)
        shares = shares / shares.sum()
        if np.abs(shares - before).max() < 1e-6:
            break
    return shares
