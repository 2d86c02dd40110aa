"""Uplinks: which users can be served together, at which rates, and how long their uploads take."""

from covey.uplink.admission import Admission, TrialAdmission
from covey.uplink.protocol import AirTime, Uplink

__all__ = ["Admission", "AirTime", "TrialAdmission", "Uplink"]
