"""What surrounds the capture of a piece of work."""

import gc

import pytest

from basil.learning.cuda.launch import nothing_swept


def test_the_collector_waits_and_goes_on_as_before() -> None:
    with nothing_swept():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), nothing_swept():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with nothing_swept():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
