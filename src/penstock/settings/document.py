"""YAML text as plain mappings, lists and scalars. Stricter than YAML: a key that stands twice is a mistake."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from penstock.errors import ConfigError
from penstock.settings.mistakes import quoted

_SYNTAX_HINT = "check indentation and quotes there"
# PyYAML's messages repeat aliases and tags, which an unquoted password can look like.
_REPEATED_TEXT = re.compile(r" '[^'<][^']+'")


def parse_document(text: str) -> Any:
    """The document; ConfigError says where it is not YAML."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{_place(error)}not YAML: {_problem(error)}; {_SYNTAX_HINT}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"line {line}: a character that YAML does not allow; remove it") from None
    except RecursionError:
        raise ConfigError("nested too deeply; write it flatter") from None


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        first: dict[str, int] = {}
        for key, _ in node.value:
            # `<<` may repeat, and what it merges may be overridden: that is what it is for.
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                line = key.start_mark.line + 1
                if key.value in first:
                    raise ConfigError(
                        f"line {line}: the key{quoted(key.value)} is there already, on line {first[key.value]}; "
                        "remove one of them"
                    )
                first[key.value] = line
        return super().construct_mapping(node, deep)


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _problem(error: yaml.MarkedYAMLError) -> str:
    return _REPEATED_TEXT.sub("", error.problem or error.context or "it cannot be read").replace("\n", " ")
