"""Settings of the dashboard, and its limits."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from covey.errors import ScenarioError

#: Maximum size of a request body, in bytes.
BODY_BYTES = 256 * 1024
#: Timeout for receiving a request body, in seconds.
BODY_S = 10.0
#: Maximum length of an override, and of the name of an entry.
TEXT, NAME = 2000, 300
#: Maximum number of overrides in a request, and of entries and columns in a comparison.
OVERRIDES, COMPARED, COLUMNS = 200, 12, 24
#: Maximum number of points of a curve; longer curves are subsampled.
POINTS = 2000
#: Maximum number of listed entries, and search depth in folders.
ENTRIES, DEPTH = 2000, 4
#: Maximum number of concurrent event streams.
STREAMS = 64
#: Maximum sizes of a playground network.
PLAYGROUND = {"stations": 12, "users": 60, "tasks": 12, "blocks": 24}
#: Maximum sizes of a scenario, so that validation stays cheap.
NETWORK = {"stations": 1000, "users": 100_000, "tasks": 1000, "blocks": 10_000}
#: Minimum length of a token, and the environment variable that may hold it.
TOKEN, TOKEN_VARIABLE = 16, "COVEY_TOKEN"


@dataclass(frozen=True)
class Settings:
    """How a dashboard is served.

    folder: the folder of runs; host, port: address to listen on; token: secret of the clients, None to
    serve everybody on this machine; jobs: maximum number of concurrent runs and trainings; session:
    cookie value of an authenticated client.
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
        """Name of the cookie; it contains the port, because browsers share cookies between ports."""
        return f"covey_{self.port}"


def is_loopback(host: str) -> bool:
    """Whether an address or name is a loopback address, unreachable from other machines."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
