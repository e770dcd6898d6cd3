"""The error tree: every error names a fix, survives pickling, and sits under the branch that says whose fault it is."""

from __future__ import annotations

import inspect
import pickle

import pytest

from holdfast.core import errors
from holdfast.core.errors import (
    HoldfastError,
    NonRetryable,
    RemoteError,
    RunCancelled,
    RunError,
    RunFailed,
    RunPaused,
    StoreError,
    UsageError,
)

EVERY_ERROR = sorted(
    (
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, HoldfastError) and kind.__module__ == errors.__name__
    ),
    key=lambda kind: kind.__name__,
)
BRANCHES = (UsageError, RunError, StoreError)


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_every_error_can_be_built_from_a_message_and_has_a_hint(kind: type[HoldfastError]) -> None:
    error = kind("run 7 is odd")
    assert "run 7 is odd" in str(error)
    assert error.hint
    assert f"Fix: {error.hint}" in str(error)


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_every_error_says_its_own_fix_and_promise(kind: type[HoldfastError]) -> None:
    assert "default_hint" in vars(kind)
    assert kind.__doc__


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_every_error_survives_pickling(kind: type[HoldfastError]) -> None:
    error = kind("run 7 is odd", hint="make it even")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("kind", [kind for kind in EVERY_ERROR if kind not in (HoldfastError, *BRANCHES)])
def test_every_error_belongs_to_one_branch_and_is_drawn_in_the_tree(kind: type[HoldfastError]) -> None:
    assert sum(issubclass(kind, branch) for branch in BRANCHES) == 1
    assert f"── {kind.__name__}" in (errors.__doc__ or "")


def test_a_full_stop_in_the_message_is_not_doubled() -> None:
    assert str(UsageError("It is so.", hint="do this")) == "It is so. Fix: do this"


def test_run_failed_carries_its_cause_also_across_processes() -> None:
    cause = ValueError("no stock")
    error = RunFailed("checkout failed", run_id="r1", workflow="checkout", node="charge", cause=cause)
    assert error.__cause__ is cause
    assert "holdfast retry r1" in error.hint
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (copy.run_id, copy.workflow, copy.node) == ("r1", "checkout", "charge")
    assert repr(copy.cause) == repr(copy.__cause__) == "ValueError('no stock')"


def test_run_paused_names_the_command_that_goes_on() -> None:
    error = RunPaused("paused", run_id="r1", reason="charge failed")
    assert error.command == "holdfast resume r1"
    assert error.command in str(error)
    assert error.reason == "charge failed"


def test_run_cancelled_names_who_did_it() -> None:
    assert RunCancelled("cancelled", run_id="r1", by="operator").by == "operator"


def test_remote_error_keeps_type_message_and_traceback() -> None:
    error = RemoteError("ShippingError", "no route", "Traceback ...")
    assert (error.type, error.message, error.traceback) == ("ShippingError", "no route", "Traceback ...")
    assert (error.type_name, error.remote_message) == (error.type, error.message), "the names of older versions"
    assert str(error).startswith("ShippingError: no route")


def test_non_retryable_is_the_users_own_exception() -> None:
    assert not issubclass(NonRetryable, HoldfastError)
    assert issubclass(NonRetryable, Exception)
