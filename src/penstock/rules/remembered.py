"""Which rules made the rows that sinks hold. Others are for what comes from now on, and somebody should know that."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence

from penstock.rules.model import RuleSettings
from penstock.state import PipelineState

logger = logging.getLogger(__name__)

_FILE = "rules.json"


def tell_of_other_rules(rules: Sequence[RuleSettings], state: PipelineState, sinks: Sequence[str]) -> None:
    """A warning, once, if sinks hold rows that came by other rules than these."""
    now = {"fingerprint": _fingerprint(rules)}
    known = state.parts.read_json(_FILE)
    if known == now:
        return
    delivered = any((found := state.sink(name)) is not None and found.lsn is not None for name in sinks)
    former = known or ({"fingerprint": _fingerprint(())} if delivered else now)
    if former != now:
        logger.warning(
            "The rules are others than at the last start. They are for what comes from now on; what sinks hold is as it is. "
            "To have it all by these rules, copy the tables again: penstock tables FILE resync TABLE."
        )
    state.parts.write_json(_FILE, now)


def _fingerprint(rules: Sequence[RuleSettings]) -> str:
    """Secrets are not in it, so another salt is not noticed."""
    text = json.dumps([rule.model_dump(mode="json") for rule in rules], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
