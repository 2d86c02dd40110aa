"""Steps of covey's environment with random actions: one network through PettingZoo, or several batched."""

from __future__ import annotations

import numpy as np
from turns import Turns

from covey.environment.parallel import parallel_env, vector_env
from covey.scenario import Scenario, load_scenario


def network(stations: int, users: int, side_m: float, rounds: int) -> Scenario:
    """The paper's network with this number of users and side length."""
    changes = [f"network.users={users}", f"network.stations={stations}", f"network.area_m=[{side_m}, {side_m}]"]
    return load_scenario("paper", [*changes, f"training.rounds={rounds}"])


def main() -> None:
    turns = Turns()
    work = turns.work
    scenario = network(work["stations"], work["users"], work["side_m"], work["rounds"])
    rng = np.random.default_rng(0)
    if work["networks"] == 1:
        env = parallel_env(scenario, actions="binary")
        env.reset(seed=0)

        def turn() -> float:
            for _ in range(work["steps"]):
                if not env.agents:
                    env.reset()
                env.step({agent: rng.random(work["users"]) < work["chosen"] for agent in env.agents})
            return 0.0

    else:
        rounds = vector_env(scenario, work["networks"])
        rounds.reset(list(range(work["networks"])))

        def turn() -> float:
            for _ in range(work["steps"] // work["networks"]):
                if rounds.done:
                    rounds.reset(rng.integers(2**30, size=work["networks"]).tolist())
                eligible = rounds.observation.eligible
                rounds.step(eligible & (rng.random(eligible.shape) < work["chosen"]))
            return 0.0

    turns.play(turn)


if __name__ == "__main__":
    main()
