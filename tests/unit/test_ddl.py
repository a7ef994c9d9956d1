"""DDL strings and Arrow schemas are equivalent, in both directions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidSchema
from headrace.schema.ddl import check_arrow_schema, format_schema, parse_schema, parse_type

UTC = pa.timestamp("us", tz="UTC")

SIMPLE_TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    UTC,
    pa.timestamp("us"),
]

# Any name except reserved ones; names may have backticks and spaces.
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: not name.startswith("_")
)
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(pa.decimal128, st.just(precision), st.integers(0, precision))
)


def fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    field = st.builds(pa.field, names, types, nullable=st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda field: field.name.lower())


all_types = st.recursive(
    st.sampled_from(SIMPLE_TYPES) | decimals,
    lambda inner: (
        st.builds(pa.list_, inner) | st.builds(pa.map_, inner, inner) | fields(inner).map(pa.struct)
    ),
    max_leaves=6,
)
schemas = fields(all_types).map(pa.schema)


@given(schemas)
def test_what_is_formatted_parses_to_the_same_schema(schema: pa.Schema) -> None:
    assert parse_schema(format_schema(schema)) == schema


@given(schemas)
def test_a_schema_in_normal_form_is_left_as_it_is(schema: pa.Schema) -> None:
    assert check_arrow_schema(schema) == schema


@given(st.text())
def test_any_text_is_a_schema_or_a_refusal_with_a_hint(text: str) -> None:
    try:
        parse_schema(text)
    except InvalidSchema as refusal:
        assert refusal.hint


def test_a_schema_of_every_shape_is_read_as_spark_reads_it() -> None:
    schema = parse_schema(
        """url string, user string not null, at timestamp, amount decimal(12,2),
           tags array<string>, attrs map<string,int>,
           place struct<lat: double, lon: double not null>"""
    )
    place = pa.struct([pa.field("lat", pa.float64()), pa.field("lon", pa.float64(), False)])
    assert schema == pa.schema(
        [
            pa.field("url", pa.string()),
            pa.field("user", pa.string(), nullable=False),
            pa.field("at", UTC),
            pa.field("amount", pa.decimal128(12, 2)),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("attrs", pa.map_(pa.string(), pa.int32())),
            pa.field("place", place),
        ]
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tinyint", pa.int8()),
        ("BYTE", pa.int8()),
        ("smallint", pa.int16()),
        ("short", pa.int16()),
        ("int", pa.int32()),
        ("Integer", pa.int32()),
        ("bigint", pa.int64()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("boolean", pa.bool_()),
        ("string", pa.string()),
        ("varchar(20)", pa.string()),
        ("char ( 3 )", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", UTC),
        ("timestamp_ltz", UTC),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(10, 0)),
        ("dec(5)", pa.decimal128(5, 0)),
        ("numeric(38, 38)", pa.decimal128(38, 38)),
        ("array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("MAP<string, STRUCT<a int>>", pa.map_(pa.string(), pa.struct([("a", pa.int32())]))),
    ],
)
def test_a_type_may_go_by_any_name_spark_gives_it(text: str, expected: pa.DataType) -> None:
    assert parse_type(text) == expected


def test_a_quoted_name_may_hold_anything() -> None:
    assert parse_schema("`a b``c`: int, `not` int, comment string").names == [
        "a b`c",
        "not",
        "comment",
    ]


def test_a_comment_is_read_and_dropped() -> None:
    schema = parse_schema("""a int not null comment 'it''s, \\'so\\'', b int comment "x" """)
    assert schema == pa.schema([pa.field("a", pa.int32(), False), pa.field("b", pa.int32())])
    assert schema.field("a").metadata is None


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 1, "a column name"),
        ("a int,", 7, "a column name"),
        ("a", 2, "a type"),
        ("a %", 3, "a type"),
        ("a int b", 7, "',' or the end"),
        ("a int not", 10, "'null'"),
        ("a int comment b", 15, "a quoted comment"),
        ("a array<int", 12, "'>'"),
        ("a map<int>", 10, "','"),
        ("a struct<>", 10, "a column name"),
        ("a struct<b int", 15, "',' or '>'"),
        ("a decimal(x)", 10, "a precision and a scale"),
        ("a decimal(39,0)", 10, "a precision of 1 to 38"),
        ("a decimal(5,6)", 10, "a scale no larger"),
        ("a decimal(0)", 10, "a precision of 1 to 38"),
        ("a varchar", 10, "a length"),
        ("a char(1,2)", 7, "a length"),
        ("a " + "array<" * 5_000, 195, "at most 31"),
    ],
)
def test_a_mistake_is_refused_with_its_place_and_what_was_expected(
    text: str, position: int, expected: str
) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_schema(text)
    assert expected in caught.value.message
    assert f"character {position} " in caught.value.message
    assert caught.value.details["position"] == position


def test_an_unknown_type_is_answered_with_the_nearest_and_with_all() -> None:
    with pytest.raises(InvalidSchema, match="unknown type 'strng' at character 3") as caught:
        parse_schema("a strng")
    assert "Did you mean 'string'?" in caught.value.hint
    assert "timestamp_ntz" in caught.value.hint


@pytest.mark.parametrize("text", ["a int, A string", "A int, a string", "s struct<a int, A int>"])
def test_names_that_differ_only_in_case_are_the_same_name(text: str) -> None:
    with pytest.raises(InvalidSchema, match="same name"):
        parse_schema(text)


def test_names_with_an_underscore_in_front_belong_to_the_log() -> None:
    with pytest.raises(InvalidSchema, match="reserved"):
        parse_schema("_offset bigint")
    with pytest.raises(InvalidSchema, match="reserved"):
        check_arrow_schema(pa.schema([("_offset", pa.int64())]))
    assert format_schema(pa.schema([("_offset", pa.int64())])) == "_offset bigint"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns", tz="Europe/Paris"), UTC),
        (pa.timestamp("s", tz="+02:00"), UTC),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.decimal32(7, 2), pa.decimal128(7, 2)),
        (pa.decimal256(38, 4), pa.decimal128(38, 4)),
        (pa.large_list(pa.uint8()), pa.list_(pa.int16())),
        (pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
        (pa.list_view(pa.large_string()), pa.list_(pa.string())),
        (pa.list_(pa.field("x", pa.int8(), nullable=False)), pa.list_(pa.int8())),
        (pa.map_(pa.string_view(), pa.uint32()), pa.map_(pa.string(), pa.int64())),
        (pa.struct([("a", pa.uint8())]), pa.struct([("a", pa.int16())])),
    ],
)
def test_an_arrow_type_becomes_the_one_that_stands_for_its_spark_type(
    given: pa.DataType, expected: pa.DataType
) -> None:
    schema = pa.schema([pa.field("c", given, nullable=False)])
    assert check_arrow_schema(schema) == pa.schema([pa.field("c", expected, nullable=False)])


@pytest.mark.parametrize(
    "refused",
    [
        pa.uint64(),
        pa.float16(),
        pa.duration("us"),
        pa.time32("s"),
        pa.time64("us"),
        pa.month_day_nano_interval(),
        pa.null(),
        pa.sparse_union([pa.field("a", pa.int8())]),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.struct([]),
        pa.uuid(),
    ],
)
def test_what_spark_cannot_hold_is_refused_by_its_path(refused: pa.DataType) -> None:
    with pytest.raises(InvalidSchema, match=r"column 'c' .*Spark cannot hold"):
        check_arrow_schema(pa.schema([("c", refused)]))
    nested = pa.struct([("inner", pa.list_(refused))])
    with pytest.raises(InvalidSchema) as caught:
        check_arrow_schema(pa.schema([("c", nested)]))
    assert caught.value.details["column"] == "c.inner.element"


@pytest.mark.parametrize("wrap", ["array<{}>", "map<int, {}>", "struct<a: {}>"])
def test_what_is_accepted_can_be_stored_however_deep(wrap: str) -> None:
    text = "int"
    for _ in range(31):
        text = wrap.format(text)
    schema = parse_schema(f"a {text}")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([{"a": None}], schema=schema))
    assert pa.ipc.open_stream(sink.getvalue()).read_all().schema == schema
    deeper = pa.schema([("a", pa.list_(schema.field("a").type))])
    with pytest.raises(InvalidSchema, match="at most 31"):
        check_arrow_schema(deeper)


def test_an_arrow_schema_obeys_the_same_rules_for_names() -> None:
    for columns in ([], [("a", pa.int8()), ("A", pa.int8())], [("", pa.int8())]):
        with pytest.raises(InvalidSchema):
            check_arrow_schema(pa.schema(columns))
