"""Paths that sinks write to: each belongs to one sink, and none lies in ``state_dir``.

A sink takes what is at its path for its own and replaces it, so a path that two of them have would be destroyed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from penstock.settings.mistakes import Location
from penstock.sinks.settings import SinkSettings

Resolve = Callable[[Path], str]


def shared_places(sinks: Sequence[SinkSettings], resolve: Resolve) -> Iterator[tuple[Location, str]]:
    """By the path of the setting, below ``sinks``: what is wrong with it. ``resolve``: one name for one file."""
    taken: list[tuple[str, str, str]] = []
    for index, sink in enumerate(sinks):
        for key, place in sink.places.items():
            name = resolve(place)
            other = next(((owner, its) for known, owner, its in taken if _is_same(known, name)), None)
            if other is not None and other[0] == sink.name:
                yield (index,), f"{key} is the sink's own {other[1]}; give the copy another"
            elif other is not None:
                yield (index, *key.split(".")), _words(*other)
            taken.append((name, sink.name, key))


def places_in_state(
    sinks: Sequence[SinkSettings], state_dir: str, resolve: Resolve = os.path.realpath
) -> Iterator[tuple[Location, str]]:
    if "://" in state_dir:
        return
    state = Path(resolve(Path(state_dir)))
    for index, sink in enumerate(sinks):
        for key, place in sink.places.items():
            if state in (name := Path(resolve(place)), *name.parents):
                yield (index, *key.split(".")), "is in state_dir, which belongs to Penstock; choose a path outside it"


def _is_same(one: str, other: str) -> bool:
    """Also by another name: a hard link, or other capitals where the file system does not tell them apart."""
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:
        return False


def _words(owner: str, key: str) -> str:
    return f'sink "{owner}" has the same {"path" if key == "path" else f"path as {key}"}; give each sink its own'
