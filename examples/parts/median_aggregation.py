"""A robust aggregation in one file: the coordinate-wise median of all uploads of a task.

    covey run quick --set training.aggregation=examples.parts.median_aggregation:Median

One upload that lies moves a mean as far as it likes, but the median only within what honest users sent. It looks at
single uploads, so that masked runs refuse it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.federated import Accepted, Aggregation


class Median(Aggregation):
    """Every weight is the median over the users that uploaded for the task, whatever their samples and station."""

    def combine(self, accepted: Accepted) -> npt.NDArray[np.float32]:
        """New models (K, D)."""
        models = accepted.models.copy()
        for task in np.unique(accepted.task):
            models[task] = np.median(accepted.uploads[accepted.task == task], axis=0)
        return models
