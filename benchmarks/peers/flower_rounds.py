"""FedAvg by Flower's own strategy, or IFCA over its messages, in Flower's simulation engine with two actors."""

from __future__ import annotations

import os
import time
from pathlib import Path

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
os.environ["PYTHONPATH"] = str(Path(__file__).parent)

import flower_app
import numpy as np
from fedavg import fill, first_weights, flat, moved, network
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from turns import Turns

turns = Turns()
CLIENTS, TASKS, BATCH = turns.work["clients"], turns.work["tasks"], turns.work["batch"]
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play rounds on request of the driver."""
    while len(list(grid.get_node_ids())) < CLIENTS:
        time.sleep(0.1)
    if TASKS == 1:
        fedavg(grid)
    else:
        ifca(grid)


class NoMoreTurnsError(Exception):
    """Raised when the driver requests no more turns."""


def fedavg(grid: Grid) -> None:
    """Flower's FedAvg; a round ends with its evaluation on the server."""
    module = network()
    fill(module, first_weights(1)[0])
    started, old = [0.0], [flat(module)]
    turns.ready()

    def between(number: int, arrays: ArrayRecord) -> MetricRecord:
        seconds = time.perf_counter() - started[0]
        module.load_state_dict(arrays.to_torch_state_dict())
        new = flat(module)
        if number:
            turns.tell({"seconds": seconds, "moved": moved(new, old[0])})
        old[0] = new
        if not turns.asked():
            raise NoMoreTurnsError
        started[0] = time.perf_counter()
        return MetricRecord()

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    config = ConfigRecord({"tasks": 1, "batch": BATCH})
    try:
        strategy.start(
            grid, ArrayRecord(module.state_dict()), num_rounds=10**6, train_config=config, evaluate_fn=between
        )
    except NoMoreTurnsError:
        return


def ifca(grid: Grid) -> None:
    """IFCA: sends all models to all clients; each model becomes the mean of its clients' updates."""
    models = first_weights(TASKS)

    def turn() -> float:
        nonlocal models
        arrays = ArrayRecord({str(task): Array(models[task]) for task in range(TASKS)})
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({"tasks": TASKS, "batch": BATCH})})
        asked = [Message(content, dst_node_id=node, message_type="train") for node in grid.get_node_ids()]
        totals, members = np.zeros(models.shape), np.zeros(TASKS)
        for reply in grid.send_and_receive(asked):
            task = int(reply.content["metrics"]["task"])
            totals[task] += reply.content["arrays"]["weights"].numpy()
            members[task] += 1
        assert members.sum() == CLIENTS
        old, models = models, models.copy()
        for task in np.flatnonzero(members):
            models[task] = totals[task] / members[task]
        return moved(models, old)

    turns.play(turn)


run_simulation(
    app, flower_app.app, num_supernodes=CLIENTS,
    backend_config={"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}},
)  # fmt: skip
