"""Errors a user can act on, each with the exit code the command line returns.

Every message is one or two sentences: what was wrong, what is allowed, how to fix it. The command
line prints it without a traceback; library callers catch `CoveyError` or a subclass.
"""

from __future__ import annotations


class CoveyError(Exception):
    """Base of all errors that covey raises on purpose."""

    exit_code = 1


class ScenarioError(CoveyError):
    """A scenario, an override or a command-line value is not allowed."""

    exit_code = 2


class PartWarning(UserWarning):
    """A part that others wrote cannot do all that it should: it is left out, or a run is less exact than others."""


class MissingExtraError(ScenarioError):
    """A command or a setting needs an optional package that is not installed."""


class DataError(CoveyError):
    """A data set is missing, damaged or too small for the scenario."""

    exit_code = 3


class OutputError(CoveyError):
    """Results cannot be written where they were asked for."""

    exit_code = 4


class ResumeError(CoveyError):
    """A run cannot be resumed from its folder."""

    exit_code = 5


class PolicyError(CoveyError):
    """A policy is unknown, or returned an invalid selection."""

    exit_code = 6


class DeployError(CoveyError):
    """A deployment cannot be started, or its devices are missing or incompatible."""

    exit_code = 7


#: Exit code after Ctrl-C, the shell convention 128 + SIGINT.
INTERRUPTED = 130

EXIT_CODES: dict[int, str] = {
    0: "success",
    1: "an unexpected error; COVEY_DEBUG=1 shows the traceback",
    2: "wrong usage, a scenario or override that is not allowed or needs more memory than there is, or an extra that is"
    " not installed",
    3: "a data set is missing, damaged or too small",
    4: "results cannot be written (read-only folder, full disk, folder already in use)",
    5: "the run cannot be resumed from this folder",
    6: "the policy is unknown or returned an invalid selection",
    7: "a deployment cannot be started, or its devices are missing or incompatible",
    INTERRUPTED: "interrupted; finished work is saved and can be resumed",
}
