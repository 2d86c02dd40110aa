"""Errors of secure aggregation."""

from __future__ import annotations

from covey.errors import CoveyError


class SecurityError(CoveyError):
    """Base of all errors of secure aggregation."""


class EncodingError(SecurityError):
    """A user's values cannot be sent as fixed-point words: not finite, too large or of the wrong shape."""


class RefusedError(SecurityError):
    """A user refuses a request that would reveal more than the sums of large enough slots."""


class TamperedError(SecurityError):
    """A message was modified, or shares and counts are inconsistent."""


class BelowThresholdError(SecurityError):
    """Too few users are left to open this round's sums; the round goes on without a model change."""
