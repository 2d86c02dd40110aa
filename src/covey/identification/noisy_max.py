"""`noisy_max`: users announce the best of bounded scores after Gumbel noise, which is charged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.announcement import ChargedAnnouncement
from covey.identification.rule import Floats, Ints

if TYPE_CHECKING:
    from covey.federated.user_compute import UserCompute


class NoisyMax(ChargedAnnouncement):
    """The noisy maximum of bounded scores, which costs epsilon^2 / 8.

    The rule gives mean scores that one sample moves by a known amount, as a rule similarity_weight x s -
    (1 - similarity_weight) x loss with both parts cut to bounds. Where uploads are masked the task stays on the device,
    and the noise costs accuracy for nothing but the counts per task that stations then see.
    """

    paper: ClassVar[str] = "exponential mechanism, McSherry and Talwar 2007, by Gumbel noise"
    computes: ClassVar[str] = "bounded scores of all tasks on all its samples"
    sees: ClassVar[str] = "stations see a task that may be wrong"
    air: ClassVar[str] = "a task per user"
    suits: ClassVar[str] = "many samples per user: the noise falls with their number"
    limits: ClassVar[str] = (
        "few samples with a small charge: tasks become random; a wrong start stays wrong, as with raw tasks"
    )
    note: ClassVar[str] = "Identities were announced with noise (noisy maximum); epsilon includes them."
    words: ClassVar[str] = "announced with noise, charged"

    def scale(self, samples: Ints) -> Floats:
        """(n,) scale of the noise that the charge stands for, for users of so many samples."""
        privacy = self.scenario.privacy
        width = self.rule.score_width(replaced=privacy.adjacency == "replace_one")
        return identity_noise_scale(samples, width, privacy.identity_rho)

    def tell(self, compute: UserCompute, users: list[int], round: int, together: int) -> npt.NDArray[Any]:
        """Tasks of `users` (n,): scores and noise never leave the device. All samples count.

        Models that are not known, with weights that are not numbers, are no candidates. That is public, so that
        leaving them out costs nothing. Sums of scores are divided by the public number of samples, whether or not one
        of them is missing.
        """
        tasks = len(compute.models)
        known = np.isfinite(compute.models).all(axis=1)
        announced = np.zeros(len(users), dtype=np.int64)
        for row, user in enumerate(users):
            x, y = compute.batch_of(user, round, 0, "identify_batch")
            samples = compute.samples_of(user)
            means = self.rule.private_scores(compute, x, y) if len(y) else np.zeros(tasks)
            scores = np.where(known, means * (len(y) / samples), -np.inf)
            normals = compute.noise(user, round, "identity_noise", 2 * tasks).reshape(1, 2, tasks)
            announced[row] = noisy_identities(scores[None], self.scale(np.array([samples])), normals)[0]
        return announced


def noisy_identities(scores: Floats, scale: Floats, normals: Floats) -> Ints:
    """The task of each user, (n,), with the largest score after Gumbel noise of `scale` (n,).

    scores: (n, K); normals: (n, 2, K) standard normal values, two of which make one Gumbel value: half
    the sum of their squares is exponential, and minus its logarithm is Gumbel.
    """
    gumbel = -np.log(np.maximum((normals**2).sum(axis=1) / 2, np.finfo(np.float64).tiny))
    return np.asarray((scores + scale[:, None] * gumbel).argmax(axis=1), dtype=np.int64)


def identity_noise_scale(samples: Ints, width: float, rho: float) -> Floats:
    """Scale of the Gumbel noise, (n,), that makes an announcement from the mean of `samples` bounded scores cost `rho`.

    One sample moves each mean score by at most width / samples, the sensitivity; the noisy maximum of
    scores of that sensitivity costs epsilon^2 / 8 with scale 2 x sensitivity / epsilon.
    """
    return np.asarray(width / samples / np.sqrt(2.0 * rho), dtype=np.float64)


def score_width(similarity_weight: float, loss_bound: float, *, replaced: bool) -> float:
    """Most that one sample can change the sum of bounded scores: when replaced, or when added or removed."""
    if not 0.0 <= similarity_weight <= 1.0:
        raise ValueError(f"similarity_weight is {similarity_weight}; it must be between 0 and 1")
    low, high = -similarity_weight - (1.0 - similarity_weight) * loss_bound, similarity_weight
    return high - low if replaced else max(-low, high)
