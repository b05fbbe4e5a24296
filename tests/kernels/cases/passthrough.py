"""The pass-through kernel, for rows of plain and of awkward types."""

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import strategies as st

from penstock.kernels.contract import RESULTS, Portion
from penstock.kernels.passthrough import PassThrough
from penstock.testing.conformance import Case, register, side_of
from penstock.testing.strategies import streams, table_schema

PLAIN = table_schema("nullable")
AWKWARD = pa.schema(
    [
        ("text", pa.string()),
        ("real", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(38, 10)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int8()), ("y", pa.float32())])),
    ]
)


def twin(schema: pa.Schema, portions: Sequence[Portion]) -> dict[str, pa.Table]:
    return {RESULTS: side_of(portions, 0, schema)}


for name, schema in (("plain", PLAIN), ("awkward", AWKWARD)):
    register(
        Case(
            f"pass-through, {name} rows",
            PassThrough,
            plans=st.sampled_from([0, 1, 5, 1_000]),
            make=lambda keep, schema=schema: PassThrough(schema, keep),
            inputs=lambda keep, schema=schema: streams(schema, max_rows=12),
            twin=lambda keep, portions, schema=schema: twin(schema, portions),
            # Kept rows and one more portion: in bulk 1,100 rows of up to 700 bytes, in blobs of 100.
            budget=lambda keep: 900_000,
            ordered=True,
        )
    )
