"""G6: what is known of the server's clock between its answers is never too much (decision 0033)."""

from __future__ import annotations

from holdfast.store.server_time import ANSWERS, ServerTime

SERVER = 1_700_000_000_000_000  # what it says when ours says 0


def test_g6_an_answer_tells_what_time_it_is_at_the_least() -> None:
    time = ServerTime(0)
    time.learn(SERVER + 5_500_000, asked=5.0, answered=6.0)
    assert time.at_least(6.0) == SERVER + 5_500_000 - 1
    assert time.at_least(7.25) == SERVER + 6_750_000 - 1


def test_g6_an_answer_that_was_long_under_way_does_not_make_everybody_late() -> None:
    """What a quicker one has told is nearer to the truth, for as long as clocks do not drift apart."""
    time = ServerTime(0)
    time.learn(SERVER + 5_000_050, asked=5.0, answered=5.0001)
    quick = time.at_least(7.0)
    time.learn(SERVER + 6_000_010, asked=6.0, answered=6.9)
    assert time.at_least(7.0) == quick
    for number in range(ANSWERS):
        time.learn(SERVER + 8_000_010 + number, asked=8.0, answered=8.9)
    assert time.at_least(9.0) < quick + 2_000_000


def test_g6_a_server_whose_clock_was_set_back_is_followed_at_once() -> None:
    time = ServerTime(0)
    time.learn(SERVER + 5_000_050, asked=5.0, answered=5.0001)
    time.learn(SERVER + 5_500_050, asked=6.0, answered=6.0001)
    assert time.at_least(6.0001) == SERVER + 5_500_050 - 1


def test_g6_of_a_server_that_has_not_answered_nothing_is_known() -> None:
    assert ServerTime(0).at_least(123.0) == 0


def test_k12_what_time_it_is_follows_a_clock_that_runs_slower_than_ours() -> None:
    """What is written as due now must not be due in a moment for others, who would wait for it."""
    time = ServerTime(SERVER)
    for second in range(1, 1_000):  # fifty microseconds a second slower
        time.learn(SERVER + second * 999_950 + 100, asked=second, answered=second + 0.0003)
        assert abs(time.about(second + 0.0003) - (SERVER + second * 999_950 + 300)) <= 400


def test_k12_an_answer_that_was_long_under_way_does_not_set_the_time_back() -> None:
    time = ServerTime(SERVER)
    time.learn(SERVER + 5_000_050, asked=5.0, answered=5.0001)
    time.learn(SERVER + 6_000_010, asked=6.0, answered=9.0)
    assert abs(time.about(9.0) - (SERVER + 9_000_000)) <= 100
