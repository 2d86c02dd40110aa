"""Training of a value-decomposition network by covey, configured like its peer's."""

from __future__ import annotations

import time

import torch
from turns import Turns

from covey.agents.settings import LearnerSettings
from covey.agents.training import Trainer
from covey.scenario import load_scenario


def main() -> None:
    turns = Turns()
    work = turns.work
    torch.set_num_threads(1)
    settings = LearnerSettings(
        algorithm="dpvd", head="subset", features="paper", split=False, shaping=False, dueling=False, credit="team",
        charge="team", discount=0.99, hidden=work["hidden"], networks=work["networks"], updates=work["updates"],
        batch=work["batch"], epochs=10**6, validate_every=10**6, epsilon_share=1.0, guarded_share=0.0,
    )  # fmt: skip
    trainer = Trainer(load_scenario("quick"), settings)
    learning = [0.0]
    learn = trainer._learn

    def timed() -> float:
        started = time.perf_counter()
        loss = learn()
        learning[0] = time.perf_counter() - started
        return loss

    trainer._learn = timed  # type: ignore[method-assign]
    turns.ready()
    while turns.asked():
        started = time.perf_counter()
        trainer.run_epoch()
        turns.tell({"seconds": time.perf_counter() - started, "learning": learning[0], "moved": 0.0})


if __name__ == "__main__":
    main()
