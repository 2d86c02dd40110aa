"""Server optimisers: what a task's model makes of its aggregated movement, with memory (FedOpt, Reddi et al. 2021).

They need the aggregated models alone, not single uploads, so that they work under masks, and they are post-processing
of releases.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from covey.scenario import schema

Bools = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.float32]
#: What is remembered from round to round, (K, D) each, by name.
Memory = Mapping[str, npt.NDArray[np.float64]]

#: Decay of the squares of `adam` and `yogi`, and their degree of adaptivity tau, as in the paper.
_SQUARES_DECAY = 0.99
_ADAPTIVITY = 1e-3


def moved_by(
    training: schema.Training, before: Weights, aggregated: Weights, trained: Bools, memory: Memory
) -> tuple[Weights, Memory]:
    """New models (K, D) and memory after a round in which the models `before` became `aggregated` (K, D).

    Models of tasks that were not `trained` (K,) stay bit for bit, and so does their memory. `mean` at the rate 1 takes
    the aggregated models as they are.
    """
    kind, rate, decay = training.server, training.server_rate, training.server_momentum
    if kind == "mean" and rate == 1.0:
        return aggregated, {}
    models, tasks = before.copy(), np.flatnonzero(trained)
    kept = {name: memory[name].copy() if name in memory else _first(name, before) for name in _remembered(kind)}
    for k in tasks:
        step = aggregated[k].astype(np.float64) - before[k]
        if kind == "momentum":
            step = kept["momentum"][k] = decay * kept["momentum"][k] + step
        elif kind != "mean":
            average = kept["momentum"][k] = decay * kept["momentum"][k] + (1.0 - decay) * step
            squares, square = kept["squares"][k], np.square(step)
            if kind == "adam":
                squares += (1.0 - _SQUARES_DECAY) * (square - squares)
            else:
                squares -= (1.0 - _SQUARES_DECAY) * square * np.sign(squares - square)
            step = average / (np.sqrt(squares) + _ADAPTIVITY)
        models[k] = before[k] + rate * step
    return models, kept


def forgotten(memory: Memory, replaced: Bools) -> Memory:
    """The memory without that of tasks whose model stations `replaced` (K,) by another one."""
    if not memory or not replaced.any():
        return memory
    kept = {name: values.copy() for name, values in memory.items()}
    for name, values in kept.items():
        values[replaced] = _first(name, values[replaced])
    return kept


def _remembered(kind: str) -> tuple[str, ...]:
    return {"mean": (), "momentum": ("momentum",)}.get(kind, ("momentum", "squares"))


def _first(name: str, like: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """The memory of a task that was never trained."""
    return np.full(like.shape, _ADAPTIVITY**2 if name == "squares" else 0.0)
