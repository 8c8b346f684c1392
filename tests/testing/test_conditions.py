from __future__ import annotations

import pytest

from penstock.testing.conditions import wait_until


def test_the_first_truthy_value_is_returned() -> None:
    answers = iter([None, 0, "", "here", "too late"])
    assert wait_until(lambda: next(answers)) == "here"


def test_waiting_in_vain_names_what_was_waited_for() -> None:
    with pytest.raises(AssertionError, match="the moon to rise"):
        wait_until(lambda: False, timeout=0.05, what="the moon to rise")
