"""What a dashboard is started with, and the bounds of what it takes."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from covey.errors import ScenarioError

#: Bytes of a request's body at most.
BODY_BYTES = 256 * 1024
#: Seconds in which a request's body must have arrived.
BODY_S = 10.0
#: Characters of an override, and of the name of an entry, at most.
TEXT, NAME = 2000, 300
#: Overrides of a request, entries of a comparison and columns of it at most.
OVERRIDES, COMPARED, COLUMNS = 200, 12, 24
#: Points of a curve at most; longer ones keep every n-th and the last.
POINTS = 2000
#: Entries that are listed, and folders below one another that are looked into, at most.
ENTRIES, DEPTH = 2000, 4
#: Event streams that may be open at once.
STREAMS = 64
#: Sizes of a playground at most.
PLAYGROUND = {"stations": 12, "users": 60, "tasks": 12, "blocks": 24}
#: Sizes of a scenario that is checked or started at most, so that checking stays cheap.
NETWORK = {"stations": 1000, "users": 100_000, "tasks": 1000, "blocks": 10_000}
#: Characters of a token at least, and the environment variable that may hold it.
TOKEN, TOKEN_VARIABLE = 16, "COVEY_TOKEN"


@dataclass(frozen=True)
class Settings:
    """How a dashboard is served.

    folder: where runs are; host, port: where it listens; token: what a client must know, None for
    everybody on this machine; jobs: runs and trainings that may go on at once; session: what the
    cookie of a client that knows the token holds.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    jobs: int = 2
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < TOKEN or not self.token.isascii() or " " in self.token):
            raise ScenarioError(
                f"the token has {len(self.token)} characters; use at least {TOKEN} letters and digits without"
                " spaces, or leave --token out to get one"
            )
        if self.token is None and not is_loopback(self.host):
            raise ScenarioError(
                f"the address '{self.host}' can be reached from other machines, which needs a token; add --token"
            )

    @property
    def cookie(self) -> str:
        """Name of the cookie; browsers do not keep ports apart, so that the port is part of it."""
        return f"covey_{self.port}"


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own loopback, which no other machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
