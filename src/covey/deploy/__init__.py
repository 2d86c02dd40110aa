"""Real devices: the rounds of the simulator with users behind Flower's SuperNodes.

`prepare` writes the folders of devices and server, `Device` is one user's device, `DeviceFleet` what a round sees of
all of them, `play` a whole run. Only `courier`, `processes` and `app` know of Flower.
"""

from covey.deploy.device import Device
from covey.deploy.device_fleet import Courier, DeviceFleet, Incident
from covey.deploy.folders import DeviceFolder, prepare
from covey.deploy.server import Settings, play

__all__ = ["Courier", "Device", "DeviceFleet", "DeviceFolder", "Incident", "Settings", "play", "prepare"]
