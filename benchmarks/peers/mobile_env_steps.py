"""Steps of mobile-env with as many stations and users as covey's networks, with random actions."""

from __future__ import annotations

import numpy as np
from mobile_env.core.base import MComCore
from mobile_env.core.entities import BaseStation, UserEquipment
from turns import Turns


def main() -> None:
    turns = Turns()
    side, rng = turns.work["side_m"], np.random.default_rng(0)
    config = MComCore.default_config() | {"width": side, "height": side, "EP_MAX_TIME": turns.work["rounds"]}
    places = [(side * (1 + 2 * (b % 2)) / 4, side * (1 + 2 * (b // 2)) / 4) for b in range(turns.work["stations"])]
    stations = [BaseStation(number, place, **config["bs"]) for number, place in enumerate(places)]
    users = [UserEquipment(number, **config["ue"]) for number in range(turns.work["users"])]
    env = MComCore(stations, users, config)
    env.reset()

    def turn() -> float:
        for _ in range(turns.work["steps"]):
            actions = rng.integers(len(stations) + 1, size=len(users))
            _, _, terminated, truncated, _ = env.step(actions)
            if terminated or truncated:
                env.reset()
        return 0.0

    turns.play(turn)


if __name__ == "__main__":
    main()
