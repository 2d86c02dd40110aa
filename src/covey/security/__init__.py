"""Secure aggregation for stations that are not trusted: they learn sums per task, nothing about single users.

Idea
    A user with task k uploads K slots of D + 1 words modulo 2^64. Its own slot holds
    round(samples * value * scale) and the samples, the others zeros. Every slot carries a mask for each
    pair of users, which cancels in the sum over all users of all stations, and a personal mask of the
    user. One upload is uniform and has the same size whatever the task; so is the partial sum of one
    station, because pairs span stations. Only the network-wide sum can be opened.

Phases of a round (`aggregate_masked` runs them all; `Client` and `Aggregator` are the two sides)
    keys    each user makes two X25519 key pairs, for envelopes and for masks, and learns everybody's.
    shares  each user splits, by Shamir's scheme, its private mask key, one seed per slot of its personal
            masks, and for each slot the number 1 (its task) or 0; each peer gets its shares sealed.
    upload  the masked words go to the user's station, which only adds.
    counts  the stations name the survivors, the users whose uploads arrived. Each user adds the shares of
            the 0/1 numbers over the survivors and sends the sums, sealed, to the other survivors.
    unmask  each user opens the counts of the slots itself and, for slots with at least `minimum`
            contributors, reveals its shares of the survivors' seeds of that slot; also its shares of the
            mask keys of dropped users. From `threshold` answers the stations remove the masks.

Why a small slot stays closed
    Each slot has its own seeds. The seed shares of a small slot never leave the users, so its words stay
    under the personal masks of all survivors for everyone, all stations together included. The count
    that decides is opened by the users from shares no station can read or alter; a station can lie only
    about who survived, users answer for one set per round, their count envelopes are bound to that set,
    and with a threshold above half of the users no second set finds enough answers.

What the stations learn
    Who took part, with which station; the number of contributors of every slot, also of small ones; and
    the sums of values and samples of the opened slots. Users learn the counts as well.

What is not protected
    - Stations are semi-honest: they pass on keys and envelopes unchanged. Keys are not signed, so a
      station that substitutes its own keys for users' keys (man in the middle) reads everything; a
      deployment against such stations needs certified user keys.
    - `threshold` users who collude with a station can open anything. Fewer, in one slot, can subtract
      their own part from its sum: with one colluder a slot of two shows the other.
    - Sums and counts of rounds whose users differ little can be subtracted from each other. Noise in the
      values (differential privacy) limits what such a difference reveals about the data; nothing limits
      it for the task of a single user who joined.
    - The station a user joins narrows its task to those the station serves. Timing is not
      hidden, nor which model a user downloads: users listen to all K broadcasts.
    - A user can send wrong values or a wrong count (poisoning); masks hide it. The links between users and
      stations are presumed encrypted; an eavesdropper learns at most what the stations learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from covey.security.aggregator import Aggregator, OpenedSums, add_partials, unmask
    from covey.security.client import Client
    from covey.security.costs import PHASES, CostRecord
    from covey.security.driver import MaskedSums, Transcript, aggregate_masked
    from covey.security.encoding import decode, encode
    from covey.security.entropy import Entropy, SeededEntropy, SystemEntropy
    from covey.security.errors import BelowThresholdError, EncodingError, RefusedError, SecurityError, TamperedError
    from covey.security.messages import Envelope, MaskedUpload, PartialSum, PublicKeys, UnmaskAnswer
    from covey.security.parameters import Parameters, Session, default_threshold

__all__ = [
    "PHASES",
    "Aggregator",
    "BelowThresholdError",
    "Client",
    "CostRecord",
    "EncodingError",
    "Entropy",
    "Envelope",
    "MaskedSums",
    "MaskedUpload",
    "OpenedSums",
    "Parameters",
    "PartialSum",
    "PublicKeys",
    "RefusedError",
    "SecurityError",
    "SeededEntropy",
    "Session",
    "SystemEntropy",
    "TamperedError",
    "Transcript",
    "UnmaskAnswer",
    "add_partials",
    "aggregate_masked",
    "decode",
    "default_threshold",
    "encode",
    "unmask",
]

#: Module of each name above; imported lazily, because only masked runs and deployments need cryptography, and
#: `parameters` is imported by every run.
_HOMES = {
    "PHASES": "costs",
    "Aggregator": "aggregator",
    "BelowThresholdError": "errors",
    "Client": "client",
    "CostRecord": "costs",
    "EncodingError": "errors",
    "Entropy": "entropy",
    "Envelope": "messages",
    "MaskedSums": "driver",
    "MaskedUpload": "messages",
    "OpenedSums": "aggregator",
    "Parameters": "parameters",
    "PartialSum": "messages",
    "PublicKeys": "messages",
    "RefusedError": "errors",
    "SecurityError": "errors",
    "SeededEntropy": "entropy",
    "Session": "parameters",
    "SystemEntropy": "entropy",
    "TamperedError": "errors",
    "Transcript": "driver",
    "UnmaskAnswer": "messages",
    "add_partials": "aggregator",
    "aggregate_masked": "driver",
    "decode": "encoding",
    "default_threshold": "parameters",
    "encode": "encoding",
    "unmask": "aggregator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'covey.security' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"covey.security.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
