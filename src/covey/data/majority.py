"""The score of guessing: every user names the most frequent class of its own training labels, whatever it sees.

A model that is not better than this has learned how frequent classes are, and nothing about samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.data.types import UserData


def majority_accuracy(data: UserData) -> NDArray[np.float64]:
    """(U,) share of each user's test samples whose class is the most frequent one of its training samples.

    Of equally frequent classes the one with the lowest number is named. Test labels only judge the guess.
    """
    guesses = data.class_counts().argmax(axis=1)
    sizes = np.diff(data.test_offsets)
    user = np.repeat(np.arange(data.users), sizes)
    right = np.bincount(user, weights=data.test_y == guesses[user], minlength=data.users)
    return np.asarray(right / sizes)
