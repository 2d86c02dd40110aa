"""Deployment on real devices: the simulator's rounds with users behind Flower SuperNodes.

`prepare` writes the folders of devices and server, `Device` is one user's device, `DeviceFleet` the fleet of all
devices for a round, `play` runs all rounds. Only `courier`, `processes` and `app` depend on Flower.
"""

from covey.deploy.device import Device
from covey.deploy.device_fleet import Courier, DeviceFleet, Incident
from covey.deploy.folders import DeviceFolder, prepare
from covey.deploy.server import Settings, play

__all__ = ["Courier", "Device", "DeviceFleet", "DeviceFolder", "Incident", "Settings", "play", "prepare"]
