"""The whole protocol in one process: all users and stations of one round."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.security.aggregator import Aggregator, OpenedSums, add_partials, unmask
from covey.security.client import Client
from covey.security.costs import CostRecord
from covey.security.encoding import Words
from covey.security.entropy import Entropy, SystemEntropy
from covey.security.errors import BelowThresholdError, EncodingError
from covey.security.messages import NUMBER_BYTES, Envelope, PartialSum, PublicKeys, UnmaskAnswer
from covey.security.parameters import Parameters, Session


@dataclass(eq=False)
class Transcript:
    """All messages that passed through any station: the joint view of all stations.

    uploads: user -> words (K, D + 1). partials: station -> its masked partial sum.
    """

    session: Session
    keys: list[PublicKeys] = field(default_factory=list)
    shares: list[Envelope] = field(default_factory=list)
    uploads: dict[int, Words] = field(default_factory=dict)
    partials: dict[int, PartialSum] = field(default_factory=dict)
    counts: list[Envelope] = field(default_factory=list)
    answers: list[UnmaskAnswer] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class MaskedSums:
    """The result of a round: what the stations learn, and its cost.

    sums: (K, D) sum of samples * value over the slot's survivors, NaN where closed. samples: (K,) their
    samples, 0 where closed. counts: (K,) contributors, -1 where not even the counts could be opened.
    opened: (K,) bool. uploaded: (U,) bool, whose uploads the sums contain. refused: user -> why its values
    could not be encoded. failure: why nothing was opened, or None.
    """

    sums: NDArray[np.float64]
    samples: NDArray[np.int64]
    counts: NDArray[np.int64]
    opened: NDArray[np.bool_]
    uploaded: NDArray[np.bool_]
    refused: dict[int, str]
    failure: str | None
    cost: CostRecord
    transcript: Transcript | None

    def means(self) -> NDArray[np.float64]:
        """(K, D) data-weighted means of the opened slots, Eq. (8); NaN where closed."""
        return np.asarray(self.sums / np.where(self.opened, self.samples, 1)[:, None], dtype=np.float64)


def aggregate_masked(
    vectors: Sequence[ArrayLike] | NDArray[np.floating],
    samples: ArrayLike,
    tasks: ArrayLike,
    stations: ArrayLike,
    *,
    parameters: Parameters,
    dropped_before: Collection[int] = (),
    dropped_after: Collection[int] = (),
    entropy: Entropy | None = None,
    run: str = "run",
    round: int = 0,
    transcript: bool = False,
) -> MaskedSums:
    """Per-slot sums of samples * value over users of all stations, computed under masks.

    vectors: (U, D); samples, tasks, stations: (U,). dropped_before: users who shared keys and then never
    uploaded. dropped_after: users who uploaded and then never answered. A user whose values cannot be
    encoded drops before its upload, with the reason in `refused`. With fewer than `threshold` users left
    nothing opens and `failure` says so. `run` and `round` are bound into every key. entropy: the operating
    system's unless given. transcript: also return all messages that passed through the stations.
    """
    session = Session(parameters, run, round)
    users = range(parameters.users)
    counted = _one_per_user(samples, "samples", parameters.users)
    task_of = _one_per_user(tasks, "tasks", parameters.users)
    station_of = _one_per_user(stations, "stations", parameters.users)
    if len(vectors) != parameters.users:
        raise ValueError(f"there must be one vector for each of the {parameters.users} users, got {len(vectors)}")
    if not {*dropped_before, *dropped_after} <= set(users) or set(dropped_before) & set(dropped_after):
        raise ValueError(f"dropped users must be from 0 to {parameters.users - 1} and drop once only")

    source = SystemEntropy() if entropy is None else entropy
    cost = CostRecord(parameters.users)
    seen = Transcript(session)
    clients = [Client(session, user, int(task_of[user]), source.child(round, user)) for user in users]
    _exchange_keys(clients, station_of, cost, seen)
    _exchange_shares(clients, station_of, cost, seen)
    refused = _upload(clients, vectors, counted, station_of, dropped_before, cost, seen, keep_uploads=transcript)
    with cost.station_time("upload"):
        total = add_partials(list(seen.partials.values()))
    failure: str | None = None
    try:
        present = [clients[user] for user in total.users if user not in dropped_after]
        _count_and_reveal(present, total.users, station_of, cost, seen)
        with cost.station_time("unmask"):
            opened = unmask(session, total, {k.user: k for k in seen.keys}, users, seen.answers)
    except BelowThresholdError as error:
        failure, opened = str(error), _nothing(parameters)
    return MaskedSums(
        opened.sums,
        opened.samples,
        opened.counts,
        opened.opened,
        np.isin(np.arange(parameters.users), total.users),
        refused,
        failure,
        cost,
        seen if transcript else None,
    )


def _one_per_user(values: ArrayLike, name: str, users: int) -> NDArray[np.int64]:
    """`values` as (U,) integers."""
    given = np.asarray(values)
    whole = given.astype(np.int64)
    if given.shape != (users,) or not np.array_equal(whole, given):
        raise ValueError(f"{name} must be one whole number for each of the {users} users, got {values!r}")
    return whole


def _exchange_keys(
    clients: Sequence[Client], station_of: NDArray[np.int64], cost: CostRecord, seen: Transcript
) -> None:
    """Every user sends its public keys to its station, and receives those of all others."""
    others = len(np.unique(station_of)) - 1
    for client in clients:
        with cost.user_time("keys", client.user):
            keys = client.advertise()
        cost.up_bytes["keys"][client.user] += keys.size
        cost.backhaul_bytes["keys"] += others * keys.size
        seen.keys.append(keys)
    for client in clients:
        cost.down_bytes["keys"][client.user] += sum(k.size for k in seen.keys if k.user != client.user)
        with cost.user_time("keys", client.user):
            client.agree(seen.keys)


def _exchange_shares(
    clients: Sequence[Client], station_of: NDArray[np.int64], cost: CostRecord, seen: Transcript
) -> None:
    """Every user sends each other user sealed shares of its secrets."""
    for client in clients:
        with cost.user_time("shares", client.user):
            envelopes = client.share()
        _pass_on("shares", envelopes, range(len(clients)), station_of, cost)
        seen.shares += envelopes
    for client in clients:
        received = [envelope for envelope in seen.shares if envelope.receiver == client.user]
        with cost.user_time("shares", client.user):
            client.accept(received)


def _upload(
    clients: Sequence[Client],
    vectors: Sequence[ArrayLike] | NDArray[np.floating],
    samples: NDArray[np.int64],
    station_of: NDArray[np.int64],
    dropped: Collection[int],
    cost: CostRecord,
    seen: Transcript,
    *,
    keep_uploads: bool,
) -> dict[int, str]:
    """Masked uploads to each user's own station; the users who could not encode theirs, with the reason."""
    aggregators = {int(station): Aggregator(seen.session) for station in np.unique(station_of)}
    refused: dict[int, str] = {}
    for client in clients:
        if client.user in dropped:
            continue
        try:
            with cost.user_time("upload", client.user):
                upload = client.upload(vectors[client.user], int(samples[client.user]))
        except EncodingError as error:
            refused[client.user] = str(error)
            continue
        cost.up_bytes["upload"][client.user] += upload.size
        with cost.station_time("upload"):
            aggregators[int(station_of[client.user])].receive(upload)
        if keep_uploads:
            seen.uploads[client.user] = upload.words
    seen.partials.update({station: aggregator.partial() for station, aggregator in aggregators.items()})
    # Any station may open; the first does here, and all others send it their partial sums.
    cost.backhaul_bytes["upload"] += sum(partial.size for partial in list(seen.partials.values())[1:])
    return refused


def _count_and_reveal(
    present: Sequence[Client],
    survivors: Sequence[int],
    station_of: NDArray[np.int64],
    cost: CostRecord,
    seen: Transcript,
) -> None:
    """The users still present count the slots among themselves and answer for the large enough ones."""
    listening = [client.user for client in present]
    for client in present:
        cost.down_bytes["counts"][client.user] += NUMBER_BYTES * len(survivors)
        with cost.user_time("counts", client.user):
            envelopes = client.count(survivors)
        _pass_on("counts", envelopes, listening, station_of, cost)
        seen.counts += envelopes
    for client in present:
        received = [envelope for envelope in seen.counts if envelope.receiver == client.user]
        with cost.user_time("unmask", client.user):
            answer = client.reveal(received)
        cost.up_bytes["unmask"][client.user] += answer.size
        if station_of[client.user] != station_of.min():
            cost.backhaul_bytes["unmask"] += answer.size
        seen.answers.append(answer)


def _pass_on(
    phase: str,
    envelopes: Sequence[Envelope],
    listening: Collection[int],
    station_of: NDArray[np.int64],
    cost: CostRecord,
) -> None:
    """Charges envelopes on the air and, where sender and receiver have different stations, between stations."""
    for envelope in envelopes:
        cost.up_bytes[phase][envelope.sender] += envelope.size
        if envelope.receiver in listening:
            cost.down_bytes[phase][envelope.receiver] += envelope.size
        if station_of[envelope.sender] != station_of[envelope.receiver]:
            cost.backhaul_bytes[phase] += envelope.size


def _nothing(parameters: Parameters) -> OpenedSums:
    """The outcome of a round that could not be opened."""
    return OpenedSums(
        np.full((parameters.slots, parameters.length), np.nan),
        np.zeros(parameters.slots, dtype=np.int64),
        np.full(parameters.slots, -1, dtype=np.int64),
        np.zeros(parameters.slots, dtype=np.bool_),
    )
