from __future__ import annotations

import pytest

from covey.security import SeededEntropy, SystemEntropy


def test_seeded_bytes_repeat_and_streams_differ() -> None:
    one, again = SeededEntropy(5).child(2, 7), SeededEntropy(5, 2, 7)
    assert one.draw(40) + one.draw(24) == again.draw(64)
    streams = [SeededEntropy(5), SeededEntropy(6), SeededEntropy(5, 2), SeededEntropy(5, 27), SeededEntropy(52, 7)]
    assert len({stream.draw(32) for stream in streams}) == len(streams)


def test_children_do_not_depend_on_what_was_drawn() -> None:
    used = SeededEntropy(9)
    used.draw(100)
    assert used.child(1).draw(16) == SeededEntropy(9).child(1).draw(16)


def test_system_bytes_never_repeat() -> None:
    source = SystemEntropy()
    assert len({source.child(0, 0).draw(32) for _ in range(20)}) == 20
    assert len(source.draw(5)) == 5


def test_the_docstring_says_that_seeded_rounds_are_not_private() -> None:
    assert "NOT private" in (SeededEntropy.__doc__ or "")
    with pytest.raises(ValueError, match="must be 0 or more"):
        SeededEntropy(-1)
