"""Frozen dataclasses of the kernel as JSON objects: read, written, refused, and described in OpenAPI."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import pytest
from pydantic import Field, TypeAdapter, ValidationError
from pyroaring import BitMap64

from delvec_contract.codec import Body, WireForm, as_json, canonical_json, checked
from delvec_contract.shapes import Delta, Envelope


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


@dataclass(frozen=True)
class Drawing:
    """Kept as something else than what is sent."""

    title: str
    pixels: BitMap64
    marks: dict[str, int] = field(default_factory=dict)
    dots: Sequence[Point] = ()


class SentDrawing(Envelope):
    title: str
    pixel_list: list[int]
    marks: dict[str, int] = Field(default_factory=dict)
    dots: list[POINT] = Field(default_factory=list)


def read(sent):
    return Drawing(sent.title, BitMap64(sent.pixel_list), sent.marks, sent.dots)


def written(drawing):
    return SentDrawing(
        title=drawing.title, pixel_list=list(drawing.pixels), marks=drawing.marks, dots=list(drawing.dots)
    )


DRAWING = TypeAdapter(Annotated[Drawing, WireForm(Drawing, SentDrawing, read, written)])
SENT = {"title": "x", "pixel-list": [2, 1], "marks": {"a": 1, "b": 2}, "dots": [{"xAxis": 1, "other": 2}]}
KEPT = Drawing("x", BitMap64([1, 2]), {"b": 2, "a": 1}, (Point(1),))


def test_a_class_with_another_form_is_read_from_it_and_written_as_it():
    assert DRAWING.validate_python(SENT) == replace(KEPT, dots=[Point(1)])
    assert DRAWING.validate_python(KEPT) is KEPT
    sent = json.loads(as_json(KEPT, exclude_none=True))
    assert sent == {**SENT, "pixel-list": [1, 2], "dots": [{"xAxis": 1}]}
    assert DRAWING.json_schema() == SentDrawing.model_json_schema()
    with pytest.raises(ValidationError, match="Extra inputs"):
        DRAWING.validate_python(SENT | {"colour": "red"})


def test_the_same_request_is_the_same_text_however_it_was_sent():
    made = replace(KEPT, dots=[Point(1, hidden="is not sent")])

    assert canonical_json(DRAWING.validate_python(SENT)) == canonical_json(made)
    assert canonical_json(SentDrawing(title="x", pixel_list=[])) == canonical_json(
        SentDrawing.model_validate({"title": "x", "pixel-list": [], "marks": {}})
    )


@pytest.mark.parametrize(
    "other", [{"title": "y"}, {"pixels": BitMap64([1])}, {"marks": {"a": 1}}, {"dots": [Point(2)]}], ids=str
)
def test_another_request_is_another_text(other):
    assert canonical_json(KEPT) != canonical_json(replace(KEPT, **other))


def test_changes_of_another_kind_are_another_text():
    texts = {canonical_json(CHANGE.validate_python(each)) for each in (Shapes([]), Clear())}
    assert len(texts) == 2


def test_what_no_request_has_is_an_error():
    with pytest.raises(TypeError, match="object is not part of a request"):
        canonical_json([object()])
