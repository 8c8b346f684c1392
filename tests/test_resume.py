from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.capture.resume import Positions, resume_point
from penstock.errors import SlotLost, SourceGap, SourceSetBack, WrongServer
from penstock.lsn import LSN
from penstock.state.pipeline_state import CaptureState, SourceState

RECORDED = SourceState("shop", "7301", "shop_1")
FRESH = Positions("shop_1", LSN(100), None, "7301", LSN(1000), None, None, None, {"lake": None})


def captured(begin: int, log_end: int, position: int) -> CaptureState:
    return CaptureState(LSN(begin), LSN(log_end), LSN(position), 0.0)


USED = replace(
    FRESH, recorded=RECORDED, slot_confirmed=LSN(150), log_end=LSN(200), captured=captured(100, 200, 200),
    sinks={"lake": LSN(150)},
)  # fmt: skip

GOES_ON = {
    "a fresh pipeline starts where its slot does": (FRESH, 100),
    "the log's end is where reading goes on": (USED, 200),
    "the slot may have confirmed all of the log": (replace(USED, slot_confirmed=LSN(200)), 200),
    "the slot may have confirmed WAL that held nothing for us":
        (replace(USED, slot_confirmed=LSN(250), captured=captured(100, 200, 300)), 200),
    "a log whose capture state is lost still knows its end": (replace(USED, captured=None), 200),
    "a log longer than what was noted of it counts as it is":
        (replace(USED, captured=captured(100, 150, 150), slot_confirmed=LSN(180)), 200),
    "a pipeline that has seen no change yet goes on from its slot":
        (replace(FRESH, recorded=RECORDED, captured=captured(100, 100, 100)), 100),
    "a pipeline that has seen no change may have confirmed empty WAL":
        (replace(FRESH, recorded=RECORDED, slot_confirmed=LSN(140), captured=captured(100, 100, 150)), 140),
    "a sink that holds all that was confirmed needs no log":
        (replace(USED, log_end=None, sinks={"lake": LSN(150)}), 150),
    "a sink ahead of the slot needs no log":
        (replace(USED, log_end=None, sinks={"lake": LSN(200), "out": LSN(150)}), 150),
    "a new timeline may have begun behind the last transaction and the slot":
        (replace(USED, last_commit=LSN(190), timeline_end=LSN(191)), 200),
    "a slot made again before anything was captured":
        (replace(FRESH, recorded=RECORDED.with_new_slot()), 100),
    "state from before the server was recorded is taken as its own": (replace(USED, recorded=None), 200),
}  # fmt: skip

STOPS = {
    "another server": (replace(USED, system_identifier="9999"), WrongServer, "7301"),
    "another server even with an empty log": (replace(FRESH, recorded=RECORDED, system_identifier="1"), WrongServer, "7301"),
    "a server set back before the log's end": (replace(USED, server_end=LSN(199)), SourceSetBack, "set back"),
    "a server set back before what capture had read":
        (replace(USED, server_end=LSN(250), captured=captured(100, 200, 300)), SourceGap, "set back"),
    "a sink filled from a server further on":
        (replace(FRESH, sinks={"lake": LSN(1001)}), SourceGap, '"lake"'),
    "a new timeline that lacks the last transaction":
        (replace(USED, last_commit=LSN(190), timeline_end=LSN(190)), SourceSetBack, "0/BE"),
    "a slot that was made on the new timeline":
        (replace(USED, last_commit=LSN(120), timeline_end=LSN(149)), SourceGap, "made or advanced"),
    "a slot that is gone": (replace(USED, slot_confirmed=None), SlotLost, "does not exist"),
    "a slot that lost its WAL": (replace(USED, slot_lost_because="wal_removed"), SlotLost, "wal_removed"),
    "a slot of a publication made anew": (replace(USED, slot="shop_2"), SlotLost, "made anew"),
    "a slot made again, wherever it stands":
        (replace(USED, recorded=RECORDED.with_new_slot()), SourceGap, "made again"),
    "a slot advanced past the log": (replace(USED, slot_confirmed=LSN(201)), SourceGap, "0/C9"),
    "a slot advanced past what capture had read":
        (replace(USED, slot_confirmed=LSN(301), captured=captured(100, 200, 300)), SourceGap, "0/12C"),
    "a slot advanced past a log whose capture state is lost":
        (replace(USED, captured=None, slot_confirmed=LSN(201)), SourceGap, "0/C8"),
    "a lost log that a sink still needed": (replace(USED, log_end=None, sinks={"lake": LSN(149)}), SourceGap, '"lake"'),
    "a lost log that one of two sinks still needed":
        (replace(USED, log_end=None, sinks={"lake": LSN(150), "out": LSN(120)}), SourceGap, '"out"'),
    "a lost log before a sink had begun":
        (replace(USED, log_end=None, sinks={"lake": None}), SourceGap, '"lake"'),
    "a slot advanced before the first change was seen":
        (replace(FRESH, recorded=RECORDED, slot_confirmed=LSN(151), captured=captured(100, 100, 150)), SourceGap, "0/97"),
}  # fmt: skip


@pytest.mark.parametrize("case", GOES_ON)
def test_capture_goes_on(case: str) -> None:
    known, expected = GOES_ON[case]
    assert resume_point(known) == expected


@pytest.mark.parametrize("case", STOPS)
def test_capture_stops(case: str) -> None:
    known, error, said = STOPS[case]
    with pytest.raises(error, match=said):
        resume_point(known)
