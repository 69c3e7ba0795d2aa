"""Frozen dataclasses of the kernel as JSON objects: read, written, refused, and described in OpenAPI."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from delvec_contract.codec import Body, canonical_json, checked
from delvec_contract.shapes import Base64, Delta, Envelope


@dataclass(frozen=True)
class Line:
    """A line.

    Attributes:
        num_points: is not told to users.
    """

    num_points: int
    is_closed: bool = False

    def __post_init__(self):
        if self.is_closed and self.num_points < 3:
            raise ValueError("a closed line has 3 points")


@dataclass(frozen=True, slots=True)
class Point:
    """A point."""

    x_axis: int
    label: str | None = None
    hidden: str = "kept"


@dataclass(frozen=True)
class Shapes:
    """Shapes."""

    change: ClassVar[str] = "draw-shapes"
    lines: Sequence[Line]


@dataclass(frozen=True)
class Clear:
    """Nothing."""

    change: ClassVar[str] = "clear"


LINE = Annotated[Line, Body(Envelope, num_points=Field(le=9, description="How many."))]
POINT = Annotated[
    Point, Body(Delta, title="Dot", doc="A dot.", only=["x_axis", "label"], x_axis=Field(alias="xAxis"))
]
CHANGE = TypeAdapter(
    Annotated[
        Annotated[Shapes, Body(Envelope, lines=Annotated[list[LINE], Field(min_length=1)])]
        | Annotated[Clear, Body(Envelope)],
        Field(discriminator="change"),
    ]
)


def test_an_object_is_read_into_the_class_and_written_again():
    drawn = {"change": "draw-shapes", "lines": [{"num-points": 3, "is-closed": True}, {"num-points": 2}]}
    shapes = CHANGE.validate_python(drawn)
    assert shapes == Shapes([Line(3, is_closed=True), Line(2)])
    assert json.loads(CHANGE.dump_json(Shapes([Line(3)]), by_alias=True)) == {
        "change": "draw-shapes",
        "lines": [{"num-points": 3, "is-closed": False}],
    }
    assert CHANGE.validate_python(shapes) is shapes
    assert CHANGE.validate_python({"change": "clear"}) == Clear()


def test_a_field_that_requests_do_not_have_gets_its_default():
    assert TypeAdapter(POINT).validate_python({"xAxis": 1, "hidden": "x", "other": 2}) == Point(1)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ({"num-points": 10}, "less_than_equal"),
        ({"num-points": 1, "colour": "red"}, "extra_forbidden"),
        ({}, "missing"),
        (5, "model_type"),
        ({"num-points": 1, "is-closed": True}, "value_error"),
    ],
)
def test_an_invalid_object_is_refused_like_one_of_the_contract_itself(line, kind):
    with pytest.raises(ValidationError) as caught:
        CHANGE.validate_python({"change": "draw-shapes", "lines": [line]})
    [error] = caught.value.errors()
    assert (error["type"], error["loc"][:3]) == (kind, ("draw-shapes", "lines", 0))


def test_values_are_checked_by_the_limits_of_the_contract():
    assert checked(Line, num_points=9) == Line(9)
    assert checked(Shapes, lines=[Line(99)]) == Shapes([Line(99)])  # was checked when it was made
    with pytest.raises(ValidationError, match="less than or equal to 9"):
        checked(Line, num_points=10)


def test_openapi_names_and_describes_the_object():
    schema = TypeAdapter(list[LINE | POINT]).json_schema()
    line, dot = schema["$defs"]["Line"], schema["$defs"]["Dot"]
    assert (line["description"], line["properties"]["num-points"]["description"]) == ("A line.", "How many.")
    assert (dot["description"], list(dot["properties"]), dot["required"]) == (
        "A dot.",
        ["xAxis", "label"],
        ["xAxis"],
    )


def test_a_field_that_the_class_does_not_have_is_an_error():
    with pytest.raises(TypeError, match=r"Line has no fields \['points'\]"):
        TypeAdapter(Annotated[Line, Body(Envelope, points=Field(le=9))])


class Drawing(Envelope):
    title: str
    marks: dict[str, int] = Field(default_factory=dict)
    dots: list[POINT] = Field(default_factory=list)
    picture: Base64 | None = None


def test_the_same_request_is_the_same_text_however_it_was_sent():
    sent = {"title": "x", "marks": {"a": 1, "b": 2}, "dots": [{"xAxis": 1, "other": 2}], "picture": "AAEC"}
    made = Drawing(
        title="x",
        marks={"b": 2, "a": 1},
        dots=[Point(1, hidden="not sent")],
        picture=base64.b64encode(b"\0\1\2"),
    )

    assert canonical_json(Drawing.model_validate(sent)) == canonical_json(made)
    assert canonical_json(Drawing(title="x")) == canonical_json(Drawing(title="x", marks={}, picture=None))


@pytest.mark.parametrize(
    "other", [{"title": "y"}, {"marks": {"a": 2}}, {"dots": [Point(2)]}, {"picture": "AAED"}]
)
def test_another_request_is_another_text(other):
    one = {"title": "x", "marks": {"a": 1}, "dots": [Point(1)], "picture": "AAEC"}

    assert canonical_json(Drawing(**one)) != canonical_json(Drawing(**(one | other)))


def test_changes_of_another_kind_are_another_text():
    texts = {canonical_json(CHANGE.validate_python(each)) for each in (Shapes([]), Clear())}
    assert len(texts) == 2


def test_what_no_request_has_is_an_error():
    with pytest.raises(TypeError, match="object is not part of a request"):
        canonical_json([object()])
