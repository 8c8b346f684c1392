"""The config's pages name every key with its default, and every config they show is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from penstock.config.load import load_config, parse_config
from penstock.config.model import Config
from penstock.error_policy import POLICIES, Verdict
from penstock.rules.model import RuleSettings
from penstock.settings.base import Settings
from penstock.settings.sections import ApiSettings, CopySettings, LogSettings, SourceSettings, SparkSettings
from penstock.settings.tables import TableSelection
from penstock.sinks.registry import SINKS, sink_class
from penstock.sinks.settings import BatchSettings, SinkSettings
from tests.docs.pages import ROOT, Block, blocks, headings, section, table_rows

CONFIG_PAGE = ROOT / "docs" / "config.md"
SHOP_URL = "postgresql://penstock:secret@db.example.com/shop"
ENVIRONMENT = {"SHOP_URL": SHOP_URL, "REPLICA_URL": SHOP_URL.replace("shop", "replica")}
SOURCE = SourceSettings(url=SecretStr(SHOP_URL))
OUT = SinkSettings(name="out", type="stdout")
SECTIONS: dict[str, Settings] = {
    "Top level": Config(name="shop", source=SOURCE, sinks=(OUT,)),
    "source": SOURCE,
    "source.tables": TableSelection(),
    "source.copy": CopySettings(),
    "log": LogSettings(),
    "rules": RuleSettings(tables=("public.orders",)),
    "sinks": OUT,
    "sinks.batch": BatchSettings(),
    "spark": SparkSettings(),
    "api": ApiSettings(),
}
IN_WORDS = {"all defaults", "all of `public`"}


def described(text: str) -> dict[str, str]:
    """Key and default of each row of a table of keys."""
    return {key.strip("`"): default for key, default, *_ in table_rows(text)}


def default_of(settings: Settings, key: str) -> str:
    fields = type(settings).model_fields
    field = next(field for name, field in fields.items() if key in (name, field.alias))
    if field.is_required():
        return "required"
    value: Any = settings.model_dump(mode="json", by_alias=True)[key]
    if value is None:
        return "none"
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{json.dumps(value)}`"


@pytest.mark.parametrize("title", SECTIONS)
def test_the_page_has_every_key_of_a_section_with_its_default(title: str) -> None:
    settings = SECTIONS[title]
    shown = described(section(CONFIG_PAGE, title))
    assert tuple(shown) == type(settings).keys()
    actual = {key: default_of(settings, key) for key, default in shown.items() if default not in IN_WORDS}
    assert {key: shown[key] for key in actual} == actual


def test_the_page_has_no_other_sections() -> None:
    assert headings(CONFIG_PAGE)[1:] == list(SECTIONS)


@pytest.mark.parametrize("kind", SINKS)
def test_a_sinks_page_has_every_key_of_its_own_with_its_default(kind: str) -> None:
    page = ROOT / "docs" / "sinks" / f"{kind}.md"
    own = sink_class(kind).Settings
    required = {key: value for key, value in (("path", "somewhere"), ("url", SHOP_URL)) if key in own.keys()}  # noqa: SIM118
    settings = own.model_validate({"name": "out", "type": kind, **required})
    shown = described(page.read_text("utf-8").split("and the keys that")[0])
    keys = [key for key in own.keys() if key not in SinkSettings.keys()]  # noqa: SIM118
    assert shown == {key: default_of(settings, key) for key in keys}


@pytest.mark.parametrize("kind", SINKS)
def test_a_sinks_page_and_the_readme_promise_what_the_sink_does(kind: str) -> None:
    page = (ROOT / "docs" / "sinks" / f"{kind}.md").read_text("utf-8")
    promised = page.split("**Guarantee.** ")[1].split(".")[0].split(":")[0]
    assert promised.lower() == sink_class(kind).capabilities.guarantee
    readme = {cells[0]: cells[2] for cells in table_rows(section(ROOT / "README.md", "Sinks"))}
    assert readme[f"[`{kind}`](docs/sinks/{kind}.md)"] == sink_class(kind).capabilities.guarantee


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_whole_config_loads(block: Block) -> None:
    assert parse_config(block.text, ENVIRONMENT).name == "shop"


@pytest.mark.parametrize("block", blocks("yaml fragment"), ids=str)
def test_a_part_of_a_config_loads_within_one(block: Block) -> None:
    part = yaml.safe_load(block.text)
    whole = {"name": "shop", "source": {"url": SHOP_URL}, "sinks": [{"name": "out", "type": "stdout"}], **part}
    assert parse_config(yaml.safe_dump(whole), ENVIRONMENT).name == "shop"


def test_the_whole_config_on_the_page_has_the_defaults() -> None:
    shown = parse_config(blocks("yaml", CONFIG_PAGE)[0].text, ENVIRONMENT)
    assert shown.source == SOURCE
    assert shown.log == LogSettings()
    assert shown.spark == SparkSettings()
    assert shown.state_dir == SECTIONS["Top level"].model_dump()["state_dir"]


def test_the_readmes_config_is_the_example_and_has_ten_lines() -> None:
    shown = blocks("yaml", ROOT / "README.md")[0].text
    assert shown == (ROOT / "examples" / "shop.yaml").read_text("utf-8")
    assert len(shown.splitlines()) == 10
    assert load_config(ROOT / "examples" / "shop.yaml", ENVIRONMENT).sinks[0].type == "duckdb"


@pytest.mark.parametrize("kind", POLICIES, ids=lambda kind: kind.__name__)
def test_the_operators_page_says_of_every_error_whether_it_is_retried_and_what_to_do(kind: type) -> None:
    text = " ".join(section(ROOT / "docs" / "operating.md", kind.__name__).split())
    policy = next(policy for known, policy in POLICIES.items() if known is kind)
    words = {Verdict.RETRY: "Tried again", Verdict.STOP: "Stops"}
    assert f"**{words[policy.verdict]}.** {policy.advice}" in text


def test_the_operators_page_knows_no_error_that_does_not_exist() -> None:
    page = ROOT / "docs" / "operating.md"
    titles = headings(page)
    assert titles[titles.index("Every kind of error") + 1 :] == [kind.__name__ for kind in POLICIES]
