"""Damage to deletion vectors with a correct checksum, and vectors that no writer would create."""

import json
import struct
import zlib

from pyroaring import BitMap64
from tests.fuzz.tables import framed, portable, z85


def _frames(data):
    """Return each payload's start and end."""
    found, position = [], 1
    while position + 4 <= len(data):
        (size,) = struct.unpack_from(">I", data, position)
        if position + 8 + size > len(data):
            break
        if size:
            found.append((position + 4, position + 4 + size))
        position += 8 + size
    return found


def _crafted(rng):
    """Return bitmaps that no writer would create, in the portable layout."""
    far = rng.choice((2**31 - 1, 2**31, 2**32, 2**33 + 5, 2**40, 2**62, 2**63, 2**64 - 1))
    bitmap = rng.choice((BitMap64([far]), BitMap64(range(100_000)), BitMap64(), BitMap64([0, 1, far])))
    runs = bitmap.copy()
    runs.run_optimize()
    everything = (
        struct.pack("<QI", 1, 0) + struct.pack("<HHBHHHH", 0x303B, 0, 1, 0, 0xFFFF, 1, 0) + b"\0\xff\xff"
    )
    many = struct.pack("<Q", rng.choice((2**32, 2**64 - 1, 100_000)))
    return rng.choice((bitmap.serialize(), runs.serialize(), everything, many))


def hostile_vector(rng, draft):
    path = draft.pick("vector")
    frames = [] if path is None else _frames(draft.files[path])
    if not frames:
        return None
    data = draft.files[path]
    start, end = rng.choice(frames)
    payload = bytearray(data[start:end])
    if rng.random() < 0.3:
        crafted = struct.pack("<I", rng.choice((1681511377, 1681511376, 1681511377))) + _crafted(rng)
        payload[: len(crafted)] = crafted[: len(payload)]
    else:
        for _ in range(rng.choice((1, 1, 2, 6))):
            payload[rng.randrange(len(payload))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    checksum = struct.pack(">I", zlib.crc32(payload))
    draft.files[path] = data[:start] + bytes(payload) + checksum + data[end + 4 :]
    return path


def give_another_vector(rng, draft):
    """Give a file of a commit a well-formed deletion vector of arbitrary rows."""
    path = draft.pick("commit")
    lines = [] if path is None else draft.files[path].decode(errors="replace").split("\n")
    holders = [number for number, line in enumerate(lines) if '"add"' in line]
    if not holders:
        return None
    number = rng.choice(holders)
    try:
        action = json.loads(lines[number])
        add = action["add"]
        bitmap = BitMap64(_rows(rng))
        payload = portable(bitmap)
        if rng.random() < 0.5:
            vector = {"storageType": "i", "pathOrInlineDv": z85(payload), "sizeInBytes": len(payload)}
        else:
            raw = rng.randbytes(16).hex()
            name = f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
            gap = rng.choice((0, 0, 3, 2_000_000))
            draft.files[f"deletion_vector_{name}.bin"] = b"\x01" + bytes(gap) + framed(payload)
            vector = {"storageType": "u", "pathOrInlineDv": z85(bytes.fromhex(raw)), "offset": 1 + gap}
            vector["sizeInBytes"] = len(payload)
        add["deletionVector"] = {**vector, "cardinality": len(bitmap)}
        if rng.random() < 0.5:
            add.pop("stats", None)
        lines[number] = json.dumps(action)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    draft.files[path] = "\n".join(lines).encode()
    return f"action {number} of {path}"


def _rows(rng):
    far = rng.choice((100, 2**16, 2**20, 2**24, 2**31 - 9, 2**31 - 1, 2**31, 2**32, 2**33 + 5, 2**40, 2**62))
    return rng.choice(([], [0], [0, 1], range(100), range(100_000), [far], [0, far], range(0, 200, 3)))
