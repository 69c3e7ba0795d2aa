"""The property that says where Iceberg metadata is."""

import pytest

from delvec_errors import BadRequest, CorruptTable
from delvec_kernel.alter_table.metadata_location import (
    METADATA_LOCATION,
    check_metadata_location,
    is_taken_by_vacuum,
    metadata_location,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("_ice", "_ice"),
        ("./_ice//deep/", "_ice/deep"),
        (".", ""),
        ("./", ""),
        (".ice", ".ice"),
        ("/lake/ice cream", "file:///lake/ice%20cream"),
        ("file:/lake/ice/", "file:///lake/ice"),
        ("s3a://bucket/ice", "s3://bucket/ice"),
    ],
)
def test_forms(value, expected):
    check_metadata_location(METADATA_LOCATION, value)
    assert metadata_location(value, "people") == expected


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "..",
            "_ice/../..",
            "a/../b",
            "/lake/../etc",
            "_delta_log",
            "ice/_delta_log",
            "/lake/t/_delta_log/x",
        ),
        *(
            "_delvec",
            "_change_data/x",
            "_delta_index",
            "p=1",
            "a b",
            "a%2e",
            "a\\b",
            "a\0",
            "~/ice",
            "é",
            "x" * 3000,
        ),
        *("gopher://host/ice", "s3://", "s3://bucket/%2e%2e/ice", "file://host/ice", "memory:ice", "C:\\ice"),
    ],
)
def test_other_values_are_refused_when_set_and_when_read(value):
    with pytest.raises(BadRequest, match=r"delvec\.iceberg\.location"):
        check_metadata_location(METADATA_LOCATION, value)
    with pytest.raises(CorruptTable, match=r"delvec\.iceberg\.location of table 'people'"):
        metadata_location(value, "people")


def test_other_properties_are_not_checked():
    check_metadata_location("mine", "..")


def test_only_names_with_an_underscore_or_a_dot_are_safe_from_vacuum():
    assert [is_taken_by_vacuum(each) for each in ("_ice/x", ".ice", "ice", "", "metadata")] == [
        *(False, False),
        *(True, True, True),
    ]
