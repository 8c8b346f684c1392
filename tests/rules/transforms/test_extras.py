"""Libraries that are not there, or not as they should be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.rules.transforms import contract as extra
from penstock.rules.transforms import dictionaries
from tests.rules.transforms.transformed import applied, transform

NEEDING: list[tuple[str, dict[str, Any], str]] = [
    ("hash", {"algorithm": "xxhash"}, "xxhash"),
    ("encrypt", {"key_hex": "00" * 32}, "cryptography"),
    ("first_name", {}, "faker"),
    ("email", {}, "faker"),
    ("phone", {}, "faker"),
    ("company", {}, "faker"),
    ("json", {"operations": [{"operation": "set", "path": "a", "transform": {"transform": "last_name"}}]}, "faker"),
]


def forget() -> None:
    """What was loaded before."""
    for remembered in (dictionaries.load, dictionaries.addressable, dictionaries.phone_numbers):
        remembered.cache_clear()


@pytest.fixture
def forgetful() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize(("name", "settings", "library"), NEEDING)
def test_a_library_that_is_missing_is_named_with_the_command_to_install_it(
    name: str, settings: dict[str, Any], library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = transform(name, **settings)
    changed.prepare()
    forget()
    for module in [one for one in sys.modules if one.partition(".")[0] == library] or [library]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf'needs "{library}"; pip install "penstock\[rules\]"'):
        changed.prepare()
    with pytest.raises(ConfigError, match=library):
        applied(changed, ['{"a": "x"}'])


@pytest.mark.usefixtures("forgetful")
def test_another_version_of_faker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "version", lambda package: "1.0")
    with pytest.raises(ConfigError, match=r"draws from the lists of faker [0-9.]+, and 1\.0 is installed"):
        transform("first_name").prepare()


def test_what_needs_no_library_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("faker", "cryptography", "xxhash"):
        monkeypatch.setitem(sys.modules, library, None)
    for name in ("mask", "hash", "string", "uuid", "integer"):
        transform(name).prepare()
        assert applied(transform(name), ["5"]) != ["5"]
    transform("phone", preserve_format=True).prepare()
