"""The one list of type families, by the pg_catalog name of the type. What is not in it is text, and stays text."""

from __future__ import annotations

import pyarrow as pa

from penstock.pgoutput.types.bytea import ByteStrings
from penstock.pgoutput.types.family import Family
from penstock.pgoutput.types.moments import Dates, Intervals, Times, Timestamps, ZonedTimestamps
from penstock.pgoutput.types.numbers import Booleans, Floats, Integers, Numerics, ObjectIds

FAMILIES: dict[str, Family] = {
    "bool": Booleans(),
    "int2": Integers(pa.int16()),
    "int4": Integers(pa.int32()),
    "int8": Integers(pa.int64()),
    "oid": ObjectIds(),
    "float4": Floats(pa.float32()),
    "float8": Floats(pa.float64()),
    "numeric": Numerics(),
    "bytea": ByteStrings(),
    "date": Dates(),
    "time": Times(),
    "timestamp": Timestamps(),
    "timestamptz": ZonedTimestamps(),
    "interval": Intervals(),
}
