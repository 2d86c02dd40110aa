"""Positions, channel gains, link rates, and the time and energy of a round."""

from covey.radio.channel import (
    Channel,
    ChannelModel,
    PathLoss,
    build_channel,
    build_path_loss,
    distances,
    register_path_loss,
)
from covey.radio.links import (
    Overhead,
    broadcast_times,
    compute_energies,
    compute_times,
    dbm_to_w,
    downlink_slots,
    overhead,
    uplink_rates,
    uplink_times,
)
from covey.radio.mobility import (
    DrawnMobility,
    MobilityModel,
    RandomWalk,
    RandomWaypoint,
    Static,
    build_mobility,
    moves_in_arrays,
    register_mobility,
)
from covey.radio.placement import place
from covey.radio.trace import HookChannel, TraceChannel, TraceMobility, channel_and_mobility, read_trace

__all__ = [
    "Channel",
    "ChannelModel",
    "DrawnMobility",
    "HookChannel",
    "MobilityModel",
    "Overhead",
    "PathLoss",
    "RandomWalk",
    "RandomWaypoint",
    "Static",
    "TraceChannel",
    "TraceMobility",
    "broadcast_times",
    "build_channel",
    "build_mobility",
    "build_path_loss",
    "channel_and_mobility",
    "compute_energies",
    "compute_times",
    "dbm_to_w",
    "distances",
    "downlink_slots",
    "moves_in_arrays",
    "overhead",
    "place",
    "read_trace",
    "register_mobility",
    "register_path_loss",
    "uplink_rates",
    "uplink_times",
]
