"""What commands share."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from covey.cli.common import interruptible


class Finalized:
    """Is interrupted while it is finalized."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)
        time.sleep(1)


def work(number: int) -> None:
    with interruptible():
        Finalized(number)
        time.sleep(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_a_finalizer_swallows_is_not_lost(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        work(number)
    assert "KeyboardInterrupt" not in capsys.readouterr().err
    assert sys.unraisablehook is hook
