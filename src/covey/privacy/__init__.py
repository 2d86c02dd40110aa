"""Privacy: the cost of a release, the ledger of what every user has spent, and noise sources."""

from covey.privacy.accounting import epsilon, release_rho, rho_for_epsilon, sensitivity
from covey.privacy.events import GaussianReleases
from covey.privacy.journal import JOURNAL, Journal, charge_lost, labelled, read_journal, read_whole_journal
from covey.privacy.ledger import Ledger
from covey.privacy.noise_source import NoNoise, ReplayNoise, SecureNoise, build_noise

__all__ = [
    "JOURNAL",
    "GaussianReleases",
    "Journal",
    "Ledger",
    "NoNoise",
    "ReplayNoise",
    "SecureNoise",
    "build_noise",
    "charge_lost",
    "epsilon",
    "labelled",
    "read_journal",
    "read_whole_journal",
    "release_rho",
    "rho_for_epsilon",
    "sensitivity",
]
