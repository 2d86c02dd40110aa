"""Clustered federated learning over wireless networks, with differential privacy.

    import covey

    history = covey.simulate("quick", policy="greedy", seed=0)
    print(history.column("accuracy"))

`Scenario` describes a run, `simulate` plays it, `History` is the result. Each package covers
one subject: `radio`, `network`, `uplink`, `allocation`, `association`, `identification`, `federated`, `privacy`,
`data`, `simulation`, `environment`, `agents`, `evaluation`; `parts` holds the registries of all swappable parts.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from covey.agents.library import learned_policy
    from covey.association import register_policy
    from covey.data import UserData, register_dataset
    from covey.environment import parallel_env
    from covey.errors import CoveyError
    from covey.federated import register_model
    from covey.network import Observation
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

#: Module of each name above; imported lazily, because most of them need torch.
_HOMES = {
    "CoveyError": "errors",
    "History": "simulation",
    "Observation": "network",
    "Scenario": "scenario",
    "Simulation": "simulation",
    "UserData": "data",
    "dump_scenario": "scenario",
    "learned_policy": "agents.library",
    "load_scenario": "scenario",
    "parallel_env": "environment",
    "register_dataset": "data",
    "register_mobility": "radio",
    "register_model": "federated",
    "register_path_loss": "radio",
    "register_policy": "association",
    "simulate": "simulation",
}
#: Submodules that are imported lazily as `covey.NAME`.
_PACKAGES = frozenset({
    "agents", "allocation", "association", "data", "environment", "errors", "evaluation", "federated", "identification",
    "network", "parts", "privacy", "radio", "report", "scenario", "security", "seeding", "simulation", "theory",
    "uplink",
})  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"covey.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'covey' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"covey.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
