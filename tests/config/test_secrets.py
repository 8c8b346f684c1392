from __future__ import annotations

import json
import string
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.config.load import parse_config
from penstock.config.model import Config
from penstock.errors import ConfigError
from penstock.settings.secrets import HIDDEN, redact

SHELF = "tests.config.shelf:ShelfSink"
# Too odd to be part of a message by chance, with the characters that URLs, YAML and conninfo treat apart.
PASSWORDS = st.text(string.ascii_letters + string.digits + "@:/?#%&=+'\"\\ ,{}[]$*!|>é", min_size=1, max_size=12).map(
    lambda middle: f"pW7{middle}7Wp"
)


def config(source: str, **sink: Any) -> Config:
    return Config.model_validate(
        {"name": "shop", "source": {"url": source}, "sinks": [{"name": "out", "type": SHELF, **sink}]}
    )


def conninfo(password: str) -> str:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    return f"host=db dbname=shop user=ada password='{escaped}'"


@given(PASSWORDS)
def test_the_password_of_the_source_is_a_secret_in_whichever_way_it_is_written(password: str) -> None:
    for url in (
        f"postgresql://ada:{quote(password, safe='')}@db/shop",
        f"postgres://ada@db/shop?password={quote(password, safe='')}",
        conninfo(password),
    ):
        secrets = config(url).secrets()
        assert password not in redact(f"could not connect with {password}!", secrets)
        assert quote(password, safe="") not in redact(f"could not connect to {url}", secrets)


def test_what_a_sink_declares_secret_is_a_secret() -> None:
    loaded = config("postgresql://ada@db/shop", token="t0ken", url="https://bob:pa55@web/x")
    assert {"t0ken", "pa55"} <= loaded.secrets()
    assert redact("t0ken for bob at https://bob:pa55@web/x", loaded.secrets()) == (
        f"{HIDDEN} for bob at https://bob:{HIDDEN}@web/x"
    )


def test_a_password_that_is_also_the_user_is_hidden_in_urls_and_nowhere_else() -> None:
    loaded = config("postgresql://postgres:postgres@db/shop")
    assert loaded.secrets() == frozenset()
    text = "postgres is the role of postgresql://postgres:postgres@db/shop"
    assert redact(text, loaded.secrets()) == f"postgres is the role of postgresql://postgres:{HIDDEN}@db/shop"


def test_a_config_without_passwords_has_no_secrets() -> None:
    assert config("postgresql://ada@db:5432/shop").secrets() == frozenset()


def test_the_longest_secret_is_taken_out_first() -> None:
    assert redact("the word is password1", ["pass", "password1"]) == f"the word is {HIDDEN}"
    assert redact("nothing to hide", ["", "x"]) == "nothing to hide"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ada:hunter2@db/shop", "s3://key:hunter2@bucket", "host=db password=hunter2 user=ada",
        "host=db password = 'hunter2' user=ada", "postgresql://db/shop?password=hunter2&user=ada",
        "sslpassword=hunter2", "host=db password=a&hunter2", "password='it\\'s hunter2'", "?sslpassword=hunter2",
        "two: postgresql://ada:hunter2@db/a and postgresql://bob:hunter2@db/b", "postgresql://ada:p@hunter2@db/shop",
    ],
)  # fmt: skip
def test_the_password_of_any_url_is_hidden_even_when_nobody_named_it(text: str) -> None:
    assert "hunter2" not in redact(text)
    assert HIDDEN in redact(text)


@pytest.mark.parametrize("text", ["postgresql://ada@db:5432/shop", "at 10:30 ada@example.com wrote", "passwords=3"])
def test_what_holds_no_password_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_neither_printing_nor_dumping_a_config_shows_its_secrets() -> None:
    loaded = config("postgresql://ada:hunter2@db/shop", token="hunter2")
    for shown in (repr(loaded), str(loaded), loaded.model_dump_json(), json.dumps(loaded.model_dump(mode="json"))):
        assert "hunter2" not in shown


def test_a_sinks_own_error_is_shown_without_what_stands_under_secret_keys() -> None:
    sink = {"name": "out", "type": SHELF, "label": "for hunter2", "token": "hunter2"}
    document = {"name": "shop", "source": {"url": "postgresql://ada@db/shop"}, "sinks": [sink]}
    with pytest.raises(ConfigError) as refused:
        parse_config(yaml.safe_dump(document), {})
    assert refused.value.message == f"sinks[0].label: the label for {HIDDEN} is not wanted"


def test_an_error_in_a_config_built_from_objects_shows_no_secrets() -> None:
    with pytest.raises(ValidationError) as refused:
        config("mysql://ada:hunter2@db/shop", token=["hunter2"], hunter="hunter2", label="fine")
    assert refused.value.error_count() == 4
    assert "hunter2" not in f"{refused.value!s}{refused.value!r}{refused.value.errors()}"


@st.composite
def misplaced(draw: st.DrawFn, password: str) -> dict[str, Any]:
    """A config with the password somewhere that it may or may not belong, and maybe other mistakes."""
    url = draw(
        st.sampled_from(
            [
                f"postgresql://ada:{password}@db/shop",
                f"postgresql://ada:{quote(password, safe='')}@db:x/shop",
                f"mysql://ada:{password}@db/shop",
                conninfo(password) + " prot=5",
                f"host=db password={password}",
            ]
        )
    )
    document: dict[str, Any] = {"name": "Shop", "source": {"url": url}, "sinks": [{"name": "out", "type": SHELF}]}
    section, key = draw(
        st.sampled_from(
            [
                ("source", "mode"),
                ("source", "heartbeat"),
                ("source", "publication"),
                ("source", "tables"),
                ("source", url),
            ]
        )
    )
    document[section][key] = url
    document["sinks"][0][draw(st.sampled_from(["label", "height", "url", "type", "name", "token", "batch"]))] = url
    document[draw(st.sampled_from(["log", "api", "spark", "rules", "state_dir", "name", url]))] = url
    return document


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=200, derandomize=True, deadline=None)
@given(st.data(), PASSWORDS)
def test_no_error_ever_contains_the_password(data: st.DataObject, password: str) -> None:
    document = data.draw(misplaced(password))
    with pytest.raises(ConfigError) as refused:
        parse_config(yaml.safe_dump(document, allow_unicode=True), {})
    assert password not in refused.value.message
    assert quote(password, safe="") not in refused.value.message
    assert "pW7" not in refused.value.message


def test_a_password_with_bytes_that_are_not_utf8_is_a_mistake_in_the_url() -> None:
    text = "name: shop\nsource: {url: 'postgresql://ada:pW7%A7Wp@db/shop'}\nsinks: [{name: out, type: stdout}]\n"
    with pytest.raises(ConfigError, match="not a Postgres URL") as refused:
        parse_config(text)
    assert "pW7" not in str(refused.value)


def test_a_password_in_a_conninfo_may_look_like_a_url() -> None:
    assert config("host=db dbname=shop user=ada password='a://b'").secrets() >= {"a://b", "a%3A%2F%2Fb"}


@pytest.mark.parametrize("password", ["50%off", "a/b", "%zz"])
def test_a_password_that_must_be_encoded_is_said_to_be_one(password: str) -> None:
    text = f"name: shop\nsource: {{url: 'postgresql://ada:{password}@db/shop'}}\nsinks: [{{name: o, type: stdout}}]"
    with pytest.raises(ConfigError, match=r"percent-encode special characters of the password \(% is %25") as refused:
        parse_config(text)
    assert password not in str(refused.value)
