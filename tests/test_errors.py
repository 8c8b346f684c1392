from __future__ import annotations

import inspect
import pickle

import pytest

from penstock import errors
from penstock.error_policy import POLICIES, Verdict, policy_for
from penstock.errors import PenstockError, SinkError, SinkRefused

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PenstockError)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("advice", [None, "Turn it off and on again."])
def test_an_error_travels_from_executor_to_driver_whole(kind: type[PenstockError], advice: str | None) -> None:
    arrived = pickle.loads(pickle.dumps(kind("the disk is full", advice)))
    assert type(arrived) is kind
    assert (arrived.message, arrived.advice) == ("the disk is full", advice)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_prints_as_its_message_alone(kind: type[PenstockError]) -> None:
    assert str(kind("the disk is full", "make room")) == "the disk is full"


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_policy_that_advises_the_operator(kind: type[PenstockError]) -> None:
    policy = policy_for(kind("it broke"))
    assert policy.verdict in Verdict
    assert policy.advice.endswith(".")


def test_every_leaf_of_the_tree_has_a_policy_of_its_own() -> None:
    leaves = {kind for kind in KINDS if not kind.__subclasses__()}
    assert leaves <= POLICIES.keys()


def test_the_advice_of_the_error_itself_wins() -> None:
    policy = policy_for(SinkRefused("no", "Ask the owner of the table."))
    assert policy.advice == "Ask the owner of the table."
    assert policy.verdict is POLICIES[SinkRefused].verdict


def test_an_error_without_a_policy_takes_that_of_the_class_above_it() -> None:
    class ShelfTooHigh(SinkError):
        pass

    class ShelfTaken(SinkRefused):
        pass

    assert policy_for(ShelfTooHigh("too high")) == POLICIES[PenstockError]
    assert policy_for(ShelfTaken("taken")) == POLICIES[SinkRefused]


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    assert [kind.__name__ for kind in KINDS if kind.__name__ not in errors.__doc__] == []
