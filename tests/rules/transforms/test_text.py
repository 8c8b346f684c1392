"""Regular expressions, digests, encryption, literals and templates."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings.secrets import secrets_in
from tests.rules.transforms.settings import KEY, steady, texts
from tests.rules.transforms.test_registry import messages
from tests.rules.transforms.transformed import applied, transform


@pytest.mark.parametrize(
    "settings", [{"pattern": "("}, {"pattern": "(?=a)"}, {"pattern": "a", "replace": r"\1"}, {"pattern": r"(a)\1"}]
)
def test_a_pattern_that_re2_does_not_know_is_a_mistake(settings: dict[str, str]) -> None:
    (message,) = messages({"transform": "regex", **settings})
    assert "RE2" in message


def test_patterns_see_characters_not_bytes() -> None:
    assert applied(transform("regex", pattern=".", replace="x"), ["é漢𝄞", "", None]) == ["xxx", "", None]


@steady
@given(st.lists(texts, max_size=8), st.text(max_size=80))
def test_digests_are_those_of_hashlib(values: list[str], salt: str) -> None:
    plain = [hashlib.sha256(value.encode()).hexdigest() for value in values]
    keyed = [hmac.new(salt.encode(), value.encode(), "sha256").hexdigest() for value in values]
    assert applied(transform("hash"), values) == plain
    assert applied(transform("hash", salt=salt), values) == (keyed if salt else plain)
    assert applied(transform("hash", length=9), values) == [digest[:9] for digest in plain]
    short = hashlib.blake2b(digest_size=32, key=salt.encode()) if len(salt.encode()) <= 64 else None
    if short is not None and values:
        short.update(values[0].encode())
        assert applied(transform("hash", algorithm="blake2", salt=salt), values)[0] == short.hexdigest()


@pytest.mark.parametrize("algorithm", ["sha256", "blake2", "xxhash"])
def test_a_salt_changes_every_digest(algorithm: str) -> None:
    digests = {
        result
        for salt in ("", "a", "b", "b" * 65)
        for result in applied(transform("hash", algorithm=algorithm, salt=salt), ["x"])
    }
    assert len(digests) == 4


def test_a_digest_has_only_so_many_digits() -> None:
    assert "has 32 digits" in messages({"transform": "hash", "algorithm": "xxhash", "length": 33})[0]


@steady
@given(st.lists(texts, max_size=8), st.none() | st.text(min_size=1, max_size=9))
def test_who_has_the_key_can_read_what_was_encrypted(values: list[str], bound: str | None) -> None:
    cipher = AESSIV(bytes.fromhex(KEY))
    data = None if bound is None else [bound.encode()]
    encrypted = applied(transform("encrypt", key_hex=KEY, associated_data=bound), values)
    assert [cipher.decrypt(base64.b64decode(str(text)), data).decode() for text in encrypted] == values
    in_hex = applied(transform("encrypt", key_hex=KEY, associated_data=bound, encoding="hex"), values)
    assert [cipher.decrypt(bytes.fromhex(str(text)), data).decode() for text in in_hex] == values


@pytest.mark.parametrize("key", ["", "00", "xyz" * 22, "0f" * 31])
def test_a_key_that_is_none_is_refused_and_not_repeated(key: str) -> None:
    (message,) = messages({"transform": "encrypt", "key_hex": key})
    assert "openssl rand -hex 64" in message
    assert not key or key not in message


def test_keys_and_salts_are_secrets_of_the_config() -> None:
    inner = {"operation": "set", "path": "a", "transform": {"transform": "hash", "salt": "paprika"}}
    rules = {
        "a": transform("encrypt", key_hex=KEY),
        "b": transform("uuid", salt="pepper"),
        "c": transform("json", operations=[inner]),
    }
    assert {KEY, "pepper", "paprika"} <= secrets_in(rules)
    assert not any(secret in repr(rules) for secret in (KEY, "pepper", "paprika"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, "7"), (1.5, "1.5"), (False, "f"), (["a", 1], '["a", 1]'), ({"ü": None}, '{"ü": null}'), ("", "")],
)
def test_a_literal_may_be_written_as_yaml_has_it(value: object, expected: str) -> None:
    assert applied(transform("literal", value=value), ["x", None]) == [expected, None]


def test_a_template_sees_other_columns_and_takes_null_for_nothing() -> None:
    template = transform("template", template="{a|trim|upper}-{value|first:2}-{b|last:0}{a b}")
    assert template.columns() == {"a", "b", "a b"}
    row: dict[str, list[str | None]] = {"a": [" é ", None], "b": ["zzz", "zzz"], "a b": ["1", "2"]}
    assert applied(template, ["漢字x", ""], row) == ["É-漢字-1", "--2"]


def test_a_template_without_variables_is_plain_text() -> None:
    assert applied(transform("template", template="{{}}"), ["a", None]) == ["{}", None]
    assert applied(transform("template", template=""), ["a"]) == [""]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{a", "a brace without its other half"),
        ("a}", "a brace without its other half"),
        ("{}", "a brace without its other half"),
        ("{a|lowr}", 'did you mean "lower"'),
        ("{a|first}", "unknown step"),
        ("{a|lower:3}", "unknown step"),
    ],
)
def test_a_template_that_cannot_be_read_is_a_mistake(template: str, words: str) -> None:
    assert words in messages({"transform": "template", "template": template})[0]


@steady
@given(st.lists(texts, max_size=8), st.integers(0, 40))
def test_text_is_cut_to_characters(values: list[str], length: int) -> None:
    assert applied(transform("truncate", length=length), values) == [value[:length] for value in values]
