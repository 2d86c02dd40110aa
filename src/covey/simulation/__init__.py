"""The simulator: one round, whole runs, and their results."""

from covey.simulation.history import History
from covey.simulation.record import RoundRecord, UserRecord
from covey.simulation.round import play_round
from covey.simulation.run import Simulation, simulate
from covey.simulation.state import State
from covey.simulation.world import World

__all__ = ["History", "RoundRecord", "Simulation", "State", "UserRecord", "World", "play_round", "simulate"]
