"""Thrift's compact protocol as a tree that can be changed and encoded again, however little sense it then makes."""

import struct

BINARY, LIST, MAP, STRUCT = 8, 9, 11, 12
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE = (1, 2), 3, (4, 5, 6), 7


class Field:
    """A field of a struct: its number, its type, and its value; a list is ``[type, items]``, a struct a list of fields."""

    def __init__(self, number, kind, value):
        self.number, self.kind, self.value = number, kind, value


def decode(data):
    """Return the fields of the struct in these bytes."""
    value, _ = _read(data, 0, STRUCT)
    return value


def _unsigned(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _read(data, at, kind):
    if kind == STRUCT:
        fields, number = [], 0
        while header := data[at]:
            at += 1
            if header >> 4:
                number += header >> 4
            else:
                value, at = _unsigned(data, at)
                number = (value >> 1) ^ -(value & 1)
            value, at = (None, at) if header & 15 in _BOOLEANS else _read(data, at, header & 15)
            fields.append(Field(number, header & 15, value))
        return fields, at + 1
    if kind == LIST:
        count, items = data[at] >> 4, data[at] & 15
        at += 1
        if count == 15:
            count, at = _unsigned(data, at)
        values = []
        for _ in range(count):
            value, at = _read(data, at, items)
            values.append(value)
        return [items, values], at
    if kind in _INTEGERS:
        value, at = _unsigned(data, at)
        return (value >> 1) ^ -(value & 1), at
    if kind == BINARY:
        length, at = _unsigned(data, at)
        return data[at : at + length], at + length
    if kind == _DOUBLE:
        return struct.unpack("<d", data[at : at + 8])[0], at + 8
    return data[at], at + 1


def _varint(value):
    value &= (1 << 64) - 1
    parts = bytearray()
    while value >= 128:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _zigzag(value):
    return _varint((value << 1) ^ (value >> 63))


def encode(value, kind=STRUCT):
    """Return a value's bytes; a value that does not fit the type is encoded as what it is."""
    if isinstance(value, list) and (not value or isinstance(value[0], Field)):
        parts, last = [], 0
        for field in value:
            delta = field.number - last
            short = 0 < delta < 16
            parts.append(bytes([(delta if short else 0) << 4 | field.kind]))
            if not short:
                parts.append(_zigzag(field.number))
            last = field.number
            if field.kind not in _BOOLEANS:
                parts.append(encode(field.value, field.kind))
        return b"".join([*parts, b"\0"])
    if isinstance(value, list):
        items, values = value
        header = (
            bytes([len(values) << 4 | items])
            if len(values) < 15
            else bytes([0xF0 | items]) + _varint(len(values))
        )
        return header + b"".join(encode(each, items) for each in values)
    if isinstance(value, bytes):
        return _varint(len(value)) + value
    if isinstance(value, float):
        return struct.pack("<d", value)
    if kind == _BYTE or value is None:
        return bytes([(value or 0) & 255])
    return _zigzag(value)


def structs(fields):
    """Return every struct below, itself included."""
    found, waiting = [], [fields]
    while waiting:  # a schema may be nested more deeply than Python recurses
        struct = waiting.pop()
        found.append(struct)
        for field in struct:
            if field.kind == STRUCT and isinstance(field.value, list):
                waiting.append(field.value)
            elif (
                field.kind == LIST
                and isinstance(field.value, list)
                and field.value
                and field.value[0] == STRUCT
            ):
                waiting += [each for each in field.value[1] if isinstance(each, list)]
    return found
