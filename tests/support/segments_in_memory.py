"""An in-memory store of segments, and layouts of live files in arbitrarily small segments."""

import pyarrow as pa

from delvec_kernel.actions.actions import AddFile
from delvec_kernel.deletion_vectors.deletion_vector import Descriptor
from delvec_kernel.file_index.engine_port import FileIndexEngine
from delvec_kernel.file_index.file_counts import FileCounts
from delvec_kernel.file_index.file_rows import FILES_SCHEMA
from delvec_kernel.file_index.live_files import LiveFiles, LiveSegment, dead_rows
from delvec_kernel.file_index.segment import Segment, SegmentsLost

LOCATION = "file:///data/t"


class PartsInMemory:
    """An unbounded cache of decoded parts."""

    def __init__(self):
        self.values = {}

    def get(self, segment, part):
        return self.values.get((segment, part))

    def put(self, segment, part, value, nbytes):  # noqa: ARG002 - as the protocol has it
        self.values[segment, part] = value

    def drop(self, segment):
        for key in [key for key in self.values if key[0] == segment]:
            del self.values[key]


class SegmentsInMemory:
    """Behaves like a SQL store, and counts its queries."""

    def __init__(self):
        self.records = {}
        self.calls = []

    def save(self, live):
        """Save new segments and parts, and return the data that restores the live files."""
        for member in live.members:
            segment = member.segment
            record = segment.record() if segment.source is None else segment.unsaved()
            if record is not None:
                blobs, summaries = self.records.setdefault(segment.id, ({}, {}))
                blobs.update(record.blobs)
                summaries.update(record.summaries)
                segment.saved(record, self)
        return [(each.segment.id, each.segment.num_rows, each.dead.tobytes()) for each in live.members]

    def restore(self, kept, counts):
        """Return live files with nothing in memory."""
        engine = FileIndexEngine(PartsInMemory(), map)
        members = [
            LiveSegment(Segment.stored(id_, rows, self, engine), dead_rows(dead)) for id_, rows, dead in kept
        ]
        return LiveFiles.restored(LOCATION, members, counts, engine)

    def blobs(self, ids, name):
        self.calls.append(name)
        try:
            return {each: self.records[each][0][name] for each in ids}
        except KeyError as error:
            raise SegmentsLost from error

    def optional_blobs(self, ids, name):
        self.calls.append(name)
        known = ((each, self.records.get(each, ({}, {}))[0]) for each in ids)
        return {each: blobs[name] for each, blobs in known if name in blobs}

    def summaries(self, ids, column):
        self.calls.append(column)
        known = ((each, self.records.get(each, ({}, {}))[1]) for each in ids)
        return {each: found[column] for each, found in known if column in found}


def laid_out(files, sizes):
    """Return live files in segments of these sizes, repeated as needed.

    ``files`` is a table with some columns of FILES_SCHEMA; the others are filled in.
    """
    count = files.num_rows
    filled = {
        "path": pa.array([f"f{number}" for number in range(count)]),
        "size": pa.array([1] * count, pa.int64()),
        "modification_time": pa.array([0] * count, pa.int64()),
    }
    columns = [
        files[each.name].combine_chunks()
        if each.name in files.column_names
        else filled.get(each.name, pa.nulls(count, each.type))
        for each in FILES_SCHEMA
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=FILES_SCHEMA)
    members, start = [], 0
    while start < count:
        size = sizes[len(members) % len(sizes)]
        members.append(LiveSegment(Segment.of(whole.slice(start, size), LOCATION)))
        start += size
    return LiveFiles(LOCATION, tuple(members), FileCounts.of(whole))


def vector_of(number):
    return None if number is None else Descriptor("u", f"{'x' * 20}", number, 40, number + 1)


def live_file(path, number=None, rows=10, **others):
    stats = None if rows is None else f'{{"numRecords":{rows}}}'
    return AddFile(
        path,
        {"p": path[2]},
        10 + rows if rows else 7,
        20,
        stats=stats,
        deletion_vector=vector_of(number),
        **others,
    )
