"""`noisy_losses`: users announce their losses on all models, bounded, with Gaussian noise that is charged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.announcement import ChargedAnnouncement
from covey.identification.rule import Floats, Ints

if TYPE_CHECKING:
    from covey.federated.user_compute import UserCompute


class NoisyLosses(ChargedAnnouncement):
    """The mean over all samples of losses that are cut to [0, B], B = `privacy.loss_bound`, with noise on each of them.

    A sample's K losses lie in a cube of side B. Replacing the sample moves the sum by at most the cube's diagonal,
    sqrt(K) B; adding or removing it, by at most half of that when losses are counted from the cube's middle, which
    moves nothing but a public constant. Divided by the public number of samples X, which under `add_remove` is declared
    and the same for both neighbours, that is the sensitivity, and noise of standard deviation sensitivity / sqrt(2 rho)
    costs rho.
    """

    paper: ClassVar[str] = "Gaussian mechanism; zCDP, Bun and Steinke 2016"
    computes: ClassVar[str] = "its loss at every model on all its samples, each cut to privacy.loss_bound"
    sees: ClassVar[str] = "stations see K noised losses of every user"
    air: ClassVar[str] = "K numbers per user"
    suits: ClassVar[str] = "groups that differ much, such as label mixes"
    limits: ClassVar[str] = (
        "groups that differ little, such as rotated images, and few samples: noisy_contrasts needs less noise"
    )
    note: ClassVar[str] = "Losses on all models were announced with noise; epsilon includes them."
    words: ClassVar[str] = "by losses announced with noise, charged"

    @property
    def reach(self) -> float:
        """Most by which one sample can move the sum of bounded vectors, in L2 norm: replaced, or added or removed."""
        privacy = self.scenario.privacy
        diagonal = float(np.sqrt(self.scenario.network.tasks)) * privacy.loss_bound
        return diagonal if privacy.adjacency == "replace_one" else diagonal / 2.0

    @property
    def middle(self) -> float:
        """The number from which what is told is counted where a sample may be missing, the same for all K numbers."""
        privacy = self.scenario.privacy
        return privacy.loss_bound / 2.0 if privacy.adjacency == "add_remove" else 0.0

    def bounded(self, losses: Floats) -> Floats:
        """Vectors (n, K) of bounded influence made of the losses (n, K) of n samples; NaN counts as the worst."""
        bound = self.scenario.privacy.loss_bound
        return np.nan_to_num(losses, nan=bound, posinf=bound).clip(0.0, bound)

    def noise_std(self, samples: Ints) -> Floats:
        """(n,) standard deviation of the noise on each number, for users of so many samples."""
        return vector_noise_std(samples, self.reach, self.scenario.privacy.identity_rho)

    def tell(self, compute: UserCompute, users: list[int], round: int, together: int) -> npt.NDArray[Any]:
        """The noised vectors of `users`, (n, K): losses and noise never leave the device. All samples count."""
        # Imported here because listing and planning announcements needs no torch.
        from covey.federated.steps import loss_table

        told = np.zeros((len(users), len(compute.models)))
        for row, user in enumerate(users):
            x, y = compute.batch_of(user, round, 0, "identify_batch")
            samples = compute.samples_of(user)
            table = loss_table(compute.module, compute.models, x, y) if len(y) else np.zeros((0, told.shape[1]))
            # The sum counted from the middle, divided by the public number of samples; places without one count 0.
            missing = samples - len(y)
            mean = self.bounded(table).sum(axis=0) / samples + self.middle * missing / samples
            normals = compute.noise(user, round, "identity_noise", len(mean))
            told[row] = mean + self.noise_std(np.array([samples])) * normals
        return told


def vector_noise_std(samples: Ints, reach: float, rho: float) -> Floats:
    """(n,) standard deviation of Gaussian noise that makes a mean of `samples` bounded vectors cost `rho`.

    One sample moves the mean by at most reach / samples in L2 norm, its sensitivity; noise of standard deviation s on
    every number costs sensitivity^2 / (2 s^2).
    """
    return np.asarray(reach / samples / np.sqrt(2.0 * rho), dtype=np.float64)
