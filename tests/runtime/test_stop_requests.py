"""When a worker has been asked to stop twice: by wishes, and not by signals."""

from __future__ import annotations

from holdfast.runtime.stop_requests import ONE_WISH_SECONDS, StopRequests


def test_g9_two_signals_at_once_are_one_wish_and_a_later_one_is_another() -> None:
    """A Ctrl-C reaches the worker from the terminal and from whoever started it."""
    now = 100.0
    requests = StopRequests(lambda: now)
    assert (requests.asked(), requests.wishes) == (True, 1)
    now += ONE_WISH_SECONDS / 2
    assert (requests.asked(), requests.wishes) == (False, 1)
    now += ONE_WISH_SECONDS
    assert (requests.asked(), requests.wishes) == (True, 2)
