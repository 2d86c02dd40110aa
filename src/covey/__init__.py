"""Clustered federated learning over wireless networks, with differential privacy.

    import covey

    history = covey.simulate("quick", policy="greedy", seed=0)
    print(history.column("accuracy"))

`Scenario` describes a run, `simulate` plays it, `History` is the result. The packages below hold
one subject each: `radio`, `allocation`, `association`, `learning`, `privacy`, `data`, `simulation`,
`environment`, `learners`, `evaluation`.
"""

from importlib import metadata

from covey.association import Observation, register_policy
from covey.data import UserData, register_dataset
from covey.environment import parallel_env
from covey.errors import CoveyError
from covey.learners.library import learned_policy
from covey.learning import register_model
from covey.radio import register_mobility, register_path_loss
from covey.scenario import Scenario, dump_scenario, load_scenario
from covey.simulation import History, Simulation, simulate

__version__ = metadata.version("covey")

__all__ = [
    "CoveyError",
    "History",
    "Observation",
    "Scenario",
    "Simulation",
    "UserData",
    "__version__",
    "dump_scenario",
    "learned_policy",
    "load_scenario",
    "parallel_env",
    "register_dataset",
    "register_mobility",
    "register_model",
    "register_path_loss",
    "register_policy",
    "simulate",
]
