"""New names of several things that are there at the same time, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import TypeVar

K = TypeVar("K")


def renames(names: Mapping[K, str], wanted: Mapping[K, str]) -> Iterator[tuple[K, str, str]]:
    """By id: renames one after the other, such that no two have one name at any time. A circle is opened by a temporary
    name."""
    names = dict(names)
    waiting = {one: new for one, new in wanted.items() if one in names and names[one] != new}
    while waiting:
        held = {names[one]: one for one in waiting}
        free = [one for one, new in waiting.items() if new not in held]
        if free:
            one, new = free[0], waiting.pop(free[0])
        else:
            one = held[next(iter(waiting.values()))]
            new = _temporary({*names.values(), *wanted.values()})
        yield one, names[one], new
        names[one] = new


def _temporary(taken: set[str]) -> str:
    return next(name for number in count(1) if (name := f"penstock_renamed_{number}") not in taken)
