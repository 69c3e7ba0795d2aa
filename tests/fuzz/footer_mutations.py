"""Damage to Parquet footers: to their bytes, and to what they say."""

import copy
from functools import cache

from tests.fuzz.thrift_tree import BINARY, LIST, STRUCT, Field, decode, encode, structs

_NUMBERS = (
    0,
    1,
    2,
    3,
    5,
    6,
    7,
    8,
    15,
    -1,
    127,
    2**15,
    2**31 - 1,
    2**31,
    2**32 + 1,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
_KINDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)


def split(data):
    """Return what lies before the footer, and the footer."""
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length], data[-8 - length : -8]


def joined(before, footer):
    """Return a Parquet file."""
    return before + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@cache
def _tree(footer):
    return decode(footer)


def _bytes(rng, footer):
    changed = bytearray(footer)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(changed))
        action = rng.randrange(4)
        if action == 0:
            changed[place] = rng.randrange(256)
        elif action == 1:
            changed[place] ^= 1 << rng.randrange(8)
        elif action == 2:
            changed[place] = (changed[place] + rng.choice((1, 2, -1, -2, 16, -16))) % 256
        else:
            other, length = rng.randrange(len(changed)), rng.randrange(1, 8)
            changed[place : place + length] = changed[other : other + length]
    return bytes(changed)


def _value(rng, field):
    if isinstance(field.value, int):
        field.value = rng.choice((*_NUMBERS, field.value + 1, field.value - 1))
    elif isinstance(field.value, bytes):
        at = rng.randrange(len(field.value) + 1)
        field.value = rng.choice(
            (b"", b"\xff\xfe", b"x" * 5000, field.value[:at], field.value + b"\0", field.value[::-1])
        )
    elif field.kind == LIST and field.value and not isinstance(field.value[0], Field):
        items = field.value[1]
        action = rng.randrange(6)
        if action == 0:
            field.value[0] = rng.choice(_KINDS)
        elif action == 1 and items:
            items.pop(rng.randrange(len(items)))
        elif action == 2 and items:
            items.insert(rng.randrange(len(items)), copy.deepcopy(rng.choice(items)))
        elif action == 3 and items:
            field.value[1] = items * rng.choice((2, 3, 100)) if len(items) < 50 else items + items
        elif action == 4:
            rng.shuffle(items)
        else:
            items.clear()
    else:
        field.kind = rng.choice(_KINDS)


def _meaning(rng, footer):
    tree = copy.deepcopy(_tree(footer))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        fields = rng.choice(structs(tree))
        action = rng.randrange(8)
        if not fields or action == 0:
            fields.append(_new(rng))
        elif action == 1:
            fields.pop(rng.randrange(len(fields)))
        elif action == 2:
            fields.append(copy.deepcopy(rng.choice(fields)))
        elif action == 3:
            chosen = rng.choice(fields)
            chosen.number = rng.choice(
                (chosen.number + 1, chosen.number - 1, 65_536 + chosen.number, rng.randrange(20))
            )
        else:
            _value(rng, rng.choice(fields))
    return encode(tree)


def _new(rng):
    """Return a field that may mean something: sizes, encryption, an annotation, or one of a newer format."""
    number = rng.choice((*range(1, 20), 63, 1000))
    kind = rng.choice((3, 5, 6, BINARY, LIST, STRUCT))
    values = {
        BINARY: b"\0" * rng.choice((0, 1, 4, 8, 12, 16)),
        LIST: [rng.choice((5, 6, BINARY, STRUCT)), []],
        STRUCT: [Field(rng.randrange(1, 19), STRUCT, [])],
    }
    if kind == LIST:
        items = values[LIST]
        items[1] = [b"x" if items[0] == BINARY else [] if items[0] == STRUCT else 1] * rng.randrange(5)
    return Field(number, kind, values.get(kind, rng.choice(_NUMBERS)))


def _deep(rng, footer):
    """Nest the schema's groups: native readers recurse."""
    tree = copy.deepcopy(_tree(footer))
    schema = next(field for field in tree if field.number == 2)
    depth = rng.choice((10, 400, 600, 5_000, 100_000))
    group = [Field(3, 5, rng.randrange(3)), Field(4, BINARY, b"g"), Field(5, 5, 1)]
    first = [field for field in schema.value[1][0] if field.number != 5] + [Field(5, 5, 1)]
    schema.value[1] = [first, *[group] * depth, schema.value[1][-1]]
    return encode(tree)


def mutated(rng, data):
    """Return a Parquet file with a damaged footer, and the kind of damage."""
    before, footer = split(data)
    change = rng.choices((_bytes, _meaning, _deep), weights=(40, 59, 1))[0]
    return joined(before, change(rng, footer)), change.__name__.strip("_")
