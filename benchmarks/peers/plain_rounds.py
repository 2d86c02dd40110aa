"""Learning rounds as a plain PyTorch loop over the clients, with two threads."""

from __future__ import annotations

import numpy as np
import torch
from fedavg import best_task, descend, fill, first_weights, flat, moved, network, tensors
from turns import Turns


def main() -> None:
    turns = Turns()
    count, tasks, batch = turns.work["clients"], turns.work["tasks"], turns.work["batch"]
    torch.set_num_threads(2)
    layout = torch.channels_last if turns.work.get("channels_last") else torch.contiguous_format
    data = [(x.contiguous(memory_format=layout), y) for x, y in map(tensors, range(count))]
    module = network().to(memory_format=layout)
    fixed = [network().to(memory_format=layout) for _ in range(tasks)]
    models = first_weights(tasks)

    def turn() -> float:
        nonlocal models
        for task in range(tasks):
            fill(fixed[task], models[task])
        totals, members = np.zeros(models.shape), np.zeros(tasks)
        for x, y in data:
            task = best_task(fixed, x, y) if tasks > 1 else 0
            fill(module, models[task])
            descend(module, x, y, batch)
            totals[task] += flat(module)
            members[task] += 1
        old, models = models, models.copy()
        for task in np.flatnonzero(members):
            models[task] = totals[task] / members[task]
        return moved(models, old)

    turns.play(turn)


if __name__ == "__main__":
    main()
