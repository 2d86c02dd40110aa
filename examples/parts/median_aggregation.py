"""A robust aggregation in one file: the coordinate-wise median of all uploads of a task.

    covey run quick --set training.aggregation=examples.parts.median_aggregation:Median

A single malicious upload can move a mean arbitrarily far, but the median only within the range of honest uploads. It
needs single uploads, so that masked runs refuse it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.federated import Accepted, Aggregation


class Median(Aggregation):
    """Every weight is the median over the users that uploaded for the task, regardless of their samples and station."""

    def combine(self, accepted: Accepted) -> npt.NDArray[np.float32]:
        """New models (K, D)."""
        models = accepted.models.copy()
        for task in np.unique(accepted.task):
            models[task] = np.median(accepted.uploads[accepted.task == task], axis=0)
        return models
