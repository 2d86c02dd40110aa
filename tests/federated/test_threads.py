from __future__ import annotations

import platform

import pytest
import torch

from covey.federated import one_thread, tune_allocator


def test_one_thread_inside_and_as_many_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(ZeroDivisionError), one_thread():  # noqa: PT012 - both belong to what is left early
            assert torch.get_num_threads() == 1
            raise ZeroDivisionError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_allocator_is_tuned_where_it_can_be() -> None:
    assert tune_allocator() == (platform.libc_ver()[0] == "glibc")
