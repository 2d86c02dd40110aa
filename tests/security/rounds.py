"""Rounds taken step by step, for tests that interfere between the steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from covey.security import Client, Envelope, MaskedUpload, Parameters, SeededEntropy, Session, UnmaskAnswer


def parameters(users: int = 6, *, threshold: int = 4, minimum: int = 2, slots: int = 3, length: int = 5) -> Parameters:
    return Parameters(users, threshold, minimum, slots, length)


def shared(session: Session, tasks: Sequence[int], seed: int = 0) -> list[Client]:
    """Clients that have exchanged keys and shares and are ready to upload."""
    clients = [Client(session, user, task, SeededEntropy(seed, user)) for user, task in enumerate(tasks)]
    roster = [client.advertise() for client in clients]
    for client in clients:
        client.agree(roster)
    envelopes = [envelope for client in clients for envelope in client.share()]
    for client in clients:
        client.accept(to(client, envelopes))
    return clients


def uploaded(session: Session, tasks: Sequence[int], seed: int = 0) -> tuple[list[Client], list[MaskedUpload]]:
    clients = shared(session, tasks, seed)
    values = np.ones(session.parameters.length)
    return clients, [client.upload(values, 10) for client in clients]


def revealed(clients: Sequence[Client], survivors: Collection[int]) -> list[UnmaskAnswer]:
    """The answers of `clients` after they counted `survivors` together."""
    envelopes = [envelope for client in clients for envelope in client.count(survivors)]
    return [client.reveal(to(client, envelopes)) for client in clients]


def to(client: Client, envelopes: Sequence[Envelope]) -> list[Envelope]:
    return [envelope for envelope in envelopes if envelope.receiver == client.user]


def flipped(envelope: Envelope, at: int) -> Envelope:
    """The envelope with one bit of byte `at` changed."""
    payload = bytearray(envelope.payload)
    payload[at] ^= 1
    return replace(envelope, payload=bytes(payload))


def plain_sums(
    vectors: NDArray[np.float64], samples: NDArray[np.int64], tasks: NDArray[np.int64], slots: int, kept: Sequence[int]
) -> NDArray[np.float64]:
    """(K, D) sums over the `kept` users, without any masks."""
    sums = np.zeros((slots, vectors.shape[1]))
    for user in kept:
        sums[tasks[user]] += samples[user] * vectors[user]
    return sums
