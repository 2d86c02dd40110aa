"""What can go wrong in secure aggregation, each kind with its own class."""

from __future__ import annotations

from covey.errors import CoveyError


class SecurityError(CoveyError):
    """Base of all errors of secure aggregation."""


class EncodingError(SecurityError):
    """A user's values cannot be sent as fixed-point words: not finite, too large or of the wrong shape."""


class RefusedError(SecurityError):
    """A user declines a request that would give away more than the sums of large enough slots."""


class TamperedError(SecurityError):
    """A message is not what its sender sent, or shares and counts do not fit together."""


class BelowThresholdError(SecurityError):
    """Too few users are left to open this round's sums; the round goes on without a model change."""
