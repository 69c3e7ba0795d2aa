"""How many files a lookup opens, against brute force, and when sorting is worthwhile."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec_errors import UnknownColumn
from delvec_kernel.actions.actions import AddFile, DomainMetadata
from delvec_kernel.file_index.file_rows import table_from_adds
from delvec_kernel.file_index.live_files import LiveFiles
from delvec_kernel.schema.types import PrimitiveType, StructField, StructType
from delvec_maintenance.health.clustering_gain import overlapping_files
from delvec_maintenance.health.health_findings import FileTable
from delvec_maintenance.health.overlap import depths, overlaps
from delvec_maintenance.zcubes import clustering_columns

SCHEMA = StructType(
    tuple(
        StructField(name, PrimitiveType(kind))
        for name, kind in (("x", "long"), ("y", "string"), ("d", "double"), ("p", "string"))
    )
)


@dataclass
class Version:
    """A stand-in for a snapshot."""

    live: LiveFiles
    partition_columns: tuple = ()
    schema: StructType = SCHEMA
    configuration: dict = field(default_factory=dict)
    domain_metadata: dict = field(default_factory=dict)

    @property
    def num_files(self):
        return self.live.table.num_rows


def add(number, low=None, high=None, *, nulls=0, partition=None, tags=None, size=100, column="x"):
    stats = {"numRecords": 10, "nullCount": {column: nulls}}
    if low is not None:
        stats |= {"minValues": {column: low}, "maxValues": {column: high}}
    values = {} if partition is None else {"p": partition}
    provider = None if tags is None else "liquid"
    return AddFile(
        f"{number}", values, size, number, stats=json.dumps(stats), tags=tags, clustering_provider=provider
    )


def version(*adds, **options):
    batches = table_from_adds(adds).combine_chunks().to_batches()
    return Version(LiveFiles.from_batches(batches, "/t"), **options)


def measured(found, column="x", traced=0):
    (one,) = overlaps(found, [(column,)], depths(found, [(column,)]), num_traced=traced)
    return one


RANGES = st.lists(
    st.tuples(
        st.sampled_from(["range", "null", "unknown"]),
        st.integers(0, 12),
        st.integers(0, 6),
        st.sampled_from("ab"),
    ),
    min_size=1,
    max_size=12,
)


@given(RANGES, st.booleans())
def test_depths_match_brute_force(ranges, is_partitioned):
    adds, facts = [], {}
    for number, (kind, low, width, partition) in enumerate(ranges):
        part = partition if is_partitioned else None
        if kind == "range":
            adds.append(add(number, low, low + width, partition=part))
        else:
            adds.append(add(number, nulls=10 if kind == "null" else 0, partition=part))
        facts[f"{number}"] = (kind, low, low + width, part)
    found = version(*adds, partition_columns=("p",) if is_partitioned else ())
    (got,) = depths(found, [("x",)])

    def opened(value, part):
        return sum(
            kind == "unknown" or (kind == "range" and low <= value <= high)
            for kind, low, high, other in facts.values()
            if other == part
        )

    for place, path in enumerate(found.live.columns(["path"])["path"].to_pylist()):
        kind, low, high, part = facts[path]
        assert got.bounded[place] == (kind == "range")
        assert got.unbounded[place] == (kind == "unknown")
        if kind == "range":
            assert got.depth[place] == (opened(low, part) + opened(high, part)) / 2
            meeting = [
                each
                for each, (other, a, b, at) in facts.items()
                if each != path and other == "range" and at == part and a <= high and b >= low
            ]
            assert got.overlaps[place] == len(meeting)
    ends = [(low, part) for kind, low, _, part in facts.values() if kind == "range"]
    assert got.most == max((opened(*end) for end in ends), default=0)


def test_numbers_and_files():
    found = version(add(0, 0, 9), add(1, 5, 14), add(2, 20, 29), add(3))
    one = measured(found, traced=2)
    assert (one.column, one.num_files, one.unbounded_files, one.max_depth) == ("x", 3, 1, 3)
    assert one.average_depth == pytest.approx((2.5 + 2.5 + 2) / 3, abs=0.01)
    assert one.average_overlaps == pytest.approx(2 / 3, abs=0.01)
    assert (one.histogram["2"], one.histogram["3-4"]) == (1, 2)
    assert {file.path for file in one.files} == {"0", "1"}


def test_text_and_columns_without_bounds():
    found = version(add(0, "a", "m", column="y"), add(1, "m", "z", column="y"))
    assert measured(found, "y").max_depth == 2
    assert measured(found, "d").average_depth is None  # maximums of floats are unknown
    with pytest.raises(UnknownColumn):
        measured(found, "z")
    assert measured(version(add(0, 1, 2)), "p").unbounded_files == 1
    assert measured(Version(LiveFiles("/t"))).average_depth is None


def clustered(*adds, columns=(("x",),)):
    text = json.dumps({"clusteringColumns": [list(path) for path in columns]})
    found = version(
        *adds, domain_metadata={"delta.clustering": DomainMetadata("delta.clustering", text, False)}
    )
    found.configuration["delta.targetFileSize"] = "100"
    return found


def advice(found, traced=0):
    columns = clustering_columns(found)
    return overlapping_files(FileTable(found, traced, clustering=True), columns, depths(found, columns))


def cube(name):
    return {"ZCUBE_ID": name, "ZCUBE_ZORDER_BY": '["x"]'}


def test_new_files_that_overlap_are_worth_sorting():
    found = clustered(*(add(number, 0, 1000) for number in range(40)))
    one = advice(found, traced=5)
    assert (one.name, one.action, one.num_files, one.cost_bytes) == (
        "overlapping-files",
        "OPTIMIZE",
        40,
        4000,
    )
    assert one.gain_files == 39
    assert one.points == pytest.approx(20 * 39 / 40)
    assert one.per_file.sum() == pytest.approx(one.points)
    assert len(one.files) == 5


def test_sorted_files_need_no_optimize():
    assert advice(clustered(*(add(n, 10 * n, 10 * n + 9, tags=cube("a")) for n in range(40)))) is None
    assert advice(clustered(*(add(n, 10 * n, 10 * n + 9) for n in range(40)))) is None  # arrived sorted
    assert advice(clustered(*(add(n, 0, 1000) for n in range(9)))) is None  # few
    assert advice(version(*(add(n, 0, 1000) for n in range(40)))) is None  # not clustered


def test_many_zcubes_are_worth_a_full_run():
    """OPTIMIZE finds nothing new, but a lookup opens a file of each ZCube."""
    adds = [add(f"{c}-{n}", 10 * n, 10 * n + 9, tags=cube(f"c{c}")) for c in range(30) for n in range(3)]
    adds = [
        AddFile(one.path, {}, 100, 1, stats=one.stats, tags=one.tags, clustering_provider="liquid")
        for one in adds
    ]
    one = advice(clustered(*adds))
    assert (one.action, one.num_files, one.gain_files) == ("OPTIMIZE FULL", 90, 29)
