"""What commands share."""

from __future__ import annotations

import os
import signal
import sys
import time

import numba
import pytest
from numba.core.typing.typeof import typeof

from covey.cli.common import interruptible


class Finalized:
    """Is interrupted while it is finalized."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)
        time.sleep(1)


class Typed:
    """Is interrupted while numba, in the middle of a call, asks Python what it is."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.went_on = False

    @property
    def _numba_type_(self) -> numba.types.Type:
        os.kill(os.getpid(), self.number)
        time.sleep(0.05)
        self.went_on = True
        return numba.types.int64


def finalize(number: int) -> None:
    with interruptible():
        Finalized(number)
        time.sleep(60)


def ask(typed: Typed) -> None:
    with interruptible():
        typeof(typed)
        time.sleep(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_a_finalizer_swallows_is_not_lost(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        finalize(number)
    assert "KeyboardInterrupt" not in capsys.readouterr().err
    assert sys.unraisablehook is hook


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_until_numba_has_what_it_asked_for(number: int) -> None:
    handler, typed = signal.getsignal(number), Typed(number)
    with pytest.raises(KeyboardInterrupt):
        ask(typed)
    assert typed.went_on
    assert signal.getsignal(number) is handler


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
