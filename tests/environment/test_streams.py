from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.environment.streams import Streams
from covey.seeding import PURPOSES, generator

WORD = 2**32 - 1


@given(
    seeds=st.lists(st.one_of(st.integers(0, 2**20), st.integers(0, 2**300)), min_size=1, max_size=5),
    purpose=st.sampled_from(sorted(PURPOSES)),
    user=st.integers(0, WORD),
    turn=st.integers(0, WORD),
)
def test_streams_are_the_generators_of_their_seeds(seeds: list[int], purpose: str, user: int, turn: int) -> None:
    found = Streams(seeds).generators(purpose, user=user, round=turn)
    alone = [generator(seed, purpose, user=user, round=turn) for seed in seeds]
    assert [rng.bit_generator.state for rng in found] == [rng.bit_generator.state for rng in alone]


def test_seeds_of_one_and_of_more_words_side_by_side_draw_the_same() -> None:
    seeds = [0, 2**32, WORD, 7, 2**64, np.int64(2**40)]
    streams = Streams(seeds)  # type: ignore[arg-type]
    for turn in (0, 1, WORD):
        drawn = [rng.normal(1.0, 2.0, (3, 2)) for rng in streams.generators("surrogate", user=2, round=turn)]
        alone = [generator(seed, "surrogate", user=2, round=turn).normal(1.0, 2.0, (3, 2)) for seed in seeds]  # type: ignore[arg-type]
        np.testing.assert_array_equal(drawn, alone)


def test_every_call_starts_anew_and_copies_draw_alike() -> None:
    streams = Streams([3, 4])
    first = [rng.random() for rng in streams.generators("mobility", round=5)]
    streams.generators("fading", round=1)
    assert [rng.random() for rng in streams.generators("mobility", round=5)] == first
    copy = pickle.loads(pickle.dumps(streams))
    assert [rng.random() for rng in copy.generators("mobility", round=5)] == first
    rng = streams.generators("mobility", round=5)[0]
    assert pickle.loads(pickle.dumps(rng)).random() == rng.random()


def test_no_seeds_give_no_generators() -> None:
    assert Streams([]).generators("noise") == []


def test_what_no_generator_has_is_refused() -> None:
    with pytest.raises(ValueError, match="the seed is -1"):
        Streams([-1])
    for user, turn in ((-1, 0), (0, -1), (WORD + 1, 0), (0, WORD + 1)):
        with pytest.raises(ValueError, match=r"both must be from 0 to 4294967295"):
            Streams([0]).generators("noise", user=user, round=turn)
    with pytest.raises(ValueError, match="8 words of"):
        Streams([0]).generators("noise")[0].bit_generator.seed_seq.generate_state(8)
