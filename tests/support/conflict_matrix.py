"""The conflict matrix: the result of our commit after a winning one, and why; compared with delta-spark's.

Each row: our operation and its variant, the winner's operation and variant, our result, delta-spark's, the reason. We have
read version 3 of the table in tests/support/conflict_scenes.py; by default an operation is about id 3 in file ``a``.
docs/conflicts.md shows the rows as tables, which ``python -m tests.support.conflict_matrix`` prints.
"""

import sys
from itertools import groupby

__all__ = ["CELLS", "OPERATIONS", "rendered"]

OPERATIONS = (
    "append",
    "overwrite",
    "replaceWhere",
    "DELETE",
    "UPDATE",
    "MERGE",
    "OPTIMIZE",
    "RESTORE",
    "metadata",
    "protocol",
    "txn",
)
PASSES = "succeeds"
APPEND, READ, DELETE = "ConcurrentAppend", "ConcurrentDeleteRead", "ConcurrentDeleteDelete"
METADATA, PROTOCOL, TXN = "MetadataChanged", "ProtocolChanged", "ConcurrentTransaction"

_BLIND = "a blind append depends on nothing; it comes after the winner"
_NOT_ALLOWED = "what was written may not fit the table's new metadata"
_ALLOWED = "the change only affects files written later"
_NEW_FEATURE = "an added feature does not invalidate the commit; the writer then checks the new protocol"
_DROPPED = "what was written may use the dropped feature"
_STREAM = "the stream adds rows that cannot match"
_STREAM_MATTERS = "the stream adds rows, and all rows matter"
_NO_ROWS = "it does not depend on rows"
_MAPPED = "the OPTIMIZE records where each row is now: ours are mapped to it"
_NOT_TOLD = "our rows cannot be located; the command has to be rerun"
_SAME_ROW = "both change the row: rerun, because its value has changed"
_MATCHING = "a matching row was added: ours would have had to see it"
_OTHER = "statistics prove that no added row matches"
_REST = "only the remaining rows are removed: deleted rows need no removal"


def _table(operation, *, features=PASSES):
    """Return the rows shared by all operations that do not change metadata."""
    return [
        (operation, "", "metadata", "", METADATA, METADATA, _NOT_ALLOWED),
        (operation, "", "metadata", "on the allow-list", PASSES, PASSES, _ALLOWED),
        (operation, "", "protocol", "", features, features, _NEW_FEATURE),
        (operation, "", "protocol", "that drops a feature", PROTOCOL, PROTOCOL, _DROPPED),
    ]


CELLS = [
    # ours, variant, winner, variant, result, delta-spark's result, reason
    *(("append", "", winner, how, PASSES, PASSES, _BLIND) for winner, how in [
        ("append", ""),
        ("overwrite", ""),
        ("replaceWhere", ""),
        ("DELETE", "of the same row"),
        ("UPDATE", "of the same row"),
        ("MERGE", "of the same row"),
        ("OPTIMIZE", ""),
        ("RESTORE", ""),
        ("txn", ""),
    ]),
    *_table("append"),
    # --- overwrite
    ("overwrite", "", "append", "", APPEND, APPEND, "the rows would survive an overwrite that comes after them"),
    ("overwrite", "under WriteSerializable", "append", "", PASSES, PASSES, "a blind append may be ordered after ours"),
    ("overwrite", "", "overwrite", "", APPEND, APPEND, "both sets of rows would remain"),
    ("overwrite", "", "replaceWhere", "", APPEND, APPEND, "the rows would survive an overwrite that comes after them"),
    ("overwrite", "", "DELETE", "of the same row", PASSES, APPEND, _REST),
    ("overwrite", "", "DELETE", "of the whole file", PASSES, READ, _REST),
    ("overwrite", "", "DELETE", "by copying", APPEND, APPEND, "the copy is a file that ours does not remove"),
    ("overwrite", "", "UPDATE", "of the same row", DELETE, APPEND, "the new row is in a file that ours does not remove"),
    ("overwrite", "", "MERGE", "of the same row", DELETE, APPEND, "the new row is in a file that ours does not remove"),
    ("overwrite", "", "MERGE", "that only deletes the same row", PASSES, APPEND, _REST),
    ("overwrite", "", "OPTIMIZE", "", PASSES, APPEND, "ours removes the outputs instead"),
    ("overwrite", "", "OPTIMIZE", "without a record of its sources", PASSES, APPEND,
     "ours removes all its sources, so it removes its outputs"),
    ("overwrite", "", "RESTORE", "", APPEND, APPEND, "it restored a file that ours does not remove"),
    *_table("overwrite"),
    ("overwrite", "", "txn", "", APPEND, APPEND, _STREAM_MATTERS),
    # --- replaceWhere
    ("replaceWhere", "", "append", "", APPEND, APPEND, _MATCHING),
    ("replaceWhere", "", "append", "of other rows", PASSES, APPEND, _OTHER),
    ("replaceWhere", "", "overwrite", "", APPEND, APPEND, _MATCHING),
    ("replaceWhere", "", "overwrite", "with other rows", PASSES, APPEND, "the range is now empty, and ours fills it"),
    ("replaceWhere", "", "replaceWhere", "", APPEND, APPEND, _MATCHING),
    ("replaceWhere", "", "replaceWhere", "of another range", PASSES, APPEND, _OTHER),
    ("replaceWhere", "", "DELETE", "of the same row", PASSES, APPEND, _REST),
    ("replaceWhere", "", "DELETE", "of the whole file", PASSES, READ, _REST),
    ("replaceWhere", "", "DELETE", "by copying", APPEND, APPEND, "the copy is a file that ours does not remove"),
    ("replaceWhere", "", "UPDATE", "of the same row", DELETE, APPEND, "the new row is in a file that ours does not remove"),
    ("replaceWhere", "", "UPDATE", "in another file", PASSES, APPEND, _OTHER),
    ("replaceWhere", "", "MERGE", "of the same row", DELETE, APPEND, "the new row is in a file that ours does not remove"),
    ("replaceWhere", "", "OPTIMIZE", "", PASSES, APPEND, _MAPPED),
    ("replaceWhere", "", "OPTIMIZE", "without a record of its sources", DELETE, APPEND, _NOT_TOLD),
    ("replaceWhere", "", "RESTORE", "", APPEND, APPEND, _MATCHING),
    ("replaceWhere", "", "RESTORE", "that undoes deletes in the file", APPEND, APPEND,
     "ours did not see the restored row, which is in a file that it removes"),
    *_table("replaceWhere"),
    ("replaceWhere", "", "txn", "", PASSES, APPEND, _STREAM),
    # --- DELETE
    ("DELETE", "", "append", "", APPEND, APPEND, _MATCHING),
    ("DELETE", "", "append", "of other rows", PASSES, APPEND, _OTHER),
    ("DELETE", "under WriteSerializable", "append", "", PASSES, PASSES, "a blind append may be ordered after ours"),
    ("DELETE", "of rows that it names, without a condition", "append", "", PASSES, APPEND, "it depends only on the rows it names"),
    ("DELETE", "", "overwrite", "", APPEND, APPEND, _MATCHING),
    ("DELETE", "", "overwrite", "with other rows", PASSES, APPEND, "the row is already deleted, and no new one matches"),
    ("DELETE", "of rows that it names, without a condition", "overwrite", "with other rows", DELETE, APPEND,
     "the rows it names cannot be located"),
    ("DELETE", "", "replaceWhere", "", APPEND, APPEND, _MATCHING),
    ("DELETE", "", "replaceWhere", "of another range", PASSES, APPEND, _OTHER),
    ("DELETE", "", "DELETE", "of the same row", PASSES, APPEND, "the row is already deleted"),
    ("DELETE", "", "DELETE", "of another row of the file", PASSES, APPEND, "other rows: the deletion vectors are merged"),
    ("DELETE", "", "DELETE", "of the whole file", PASSES, READ, "the row is already deleted"),
    ("DELETE", "", "DELETE", "in another file", PASSES, APPEND, "other rows"),
    ("DELETE", "of the whole file", "DELETE", "of another row of the file", PASSES, APPEND, _REST),
    ("DELETE", "of the whole file", "DELETE", "of the whole file", PASSES, READ, _REST),
    ("DELETE", "by copying", "DELETE", "of the same row", DELETE, APPEND, "ours has copied the row into a new file"),
    ("DELETE", "", "DELETE", "by copying", APPEND, APPEND, "the row may be in the copy"),
    ("DELETE", "", "UPDATE", "of the same row", DELETE, APPEND, _SAME_ROW),
    ("DELETE", "", "UPDATE", "of another row, which cannot match now", PASSES, APPEND, "other rows, and no new one matches"),
    ("DELETE", "", "UPDATE", "of another row, which matches now", APPEND, APPEND, _MATCHING),
    ("DELETE", "", "UPDATE", "in another file", PASSES, APPEND, "other rows, and no new one matches"),
    ("DELETE", "", "MERGE", "of the same row", DELETE, APPEND, _SAME_ROW),
    ("DELETE", "", "MERGE", "of another row, which cannot match now", PASSES, APPEND, "other rows, and no new one matches"),
    ("DELETE", "", "MERGE", "that only deletes the same row", PASSES, APPEND, "the row is already deleted"),
    ("DELETE", "", "OPTIMIZE", "", PASSES, APPEND, _MAPPED),
    ("DELETE", "", "OPTIMIZE", "without a record of its sources", DELETE, APPEND, _NOT_TOLD),
    ("DELETE", "", "OPTIMIZE", "of another file", PASSES, APPEND, "the same rows in other files"),
    ("DELETE", "of the whole file", "OPTIMIZE", "", PASSES, APPEND, _MAPPED),
    ("DELETE", "", "RESTORE", "", APPEND, APPEND, _MATCHING),
    ("DELETE", "", "RESTORE", "that undoes deletes in the file", APPEND, APPEND, "a restored row may match"),
    ("DELETE", "of rows that it names, without a condition", "RESTORE", "that undoes deletes in the file", PASSES, APPEND,
     "the restored row is not one that it names"),
    *_table("DELETE"),
    ("DELETE", "", "txn", "", PASSES, APPEND, _STREAM),
    ("DELETE", "", "txn", "of matching rows", APPEND, APPEND, _MATCHING),
    # --- UPDATE
    ("UPDATE", "", "append", "", APPEND, APPEND, _MATCHING),
    ("UPDATE", "", "append", "of other rows", PASSES, APPEND, _OTHER),
    ("UPDATE", "under WriteSerializable", "append", "", PASSES, PASSES, "a blind append may be ordered after ours"),
    ("UPDATE", "", "overwrite", "with other rows", DELETE, APPEND, "ours would restore the row"),
    ("UPDATE", "", "replaceWhere", "", DELETE, APPEND, "ours would restore the row"),
    ("UPDATE", "", "replaceWhere", "of another range", PASSES, APPEND, _OTHER),
    ("UPDATE", "", "DELETE", "of the same row", DELETE, APPEND, "ours would restore the row"),
    ("UPDATE", "", "DELETE", "of another row of the file", PASSES, APPEND, "other rows: the deletion vectors are merged"),
    ("UPDATE", "", "DELETE", "of the whole file", DELETE, READ, "ours would restore the row"),
    ("UPDATE", "", "DELETE", "in another file", PASSES, APPEND, "other rows"),
    ("UPDATE", "", "UPDATE", "of the same row", DELETE, APPEND, "the row would exist twice"),
    ("UPDATE", "", "UPDATE", "of another row, which cannot match now", PASSES, APPEND, "other rows, and no new one matches"),
    ("UPDATE", "", "UPDATE", "of another row, which matches now", APPEND, APPEND, _MATCHING),
    ("UPDATE", "", "MERGE", "of the same row", DELETE, APPEND, "the row would exist twice"),
    ("UPDATE", "", "MERGE", "in another file", PASSES, APPEND, "other rows, and no new one matches"),
    ("UPDATE", "", "OPTIMIZE", "", PASSES, APPEND, _MAPPED),
    ("UPDATE", "", "OPTIMIZE", "without a record of its sources", DELETE, APPEND, _NOT_TOLD),
    ("UPDATE", "", "RESTORE", "", DELETE, APPEND, "ours would restore the row"),
    ("UPDATE", "", "RESTORE", "that undoes deletes in the file", APPEND, APPEND, "a restored row may match"),
    *_table("UPDATE"),
    ("UPDATE", "", "txn", "", PASSES, APPEND, _STREAM),
    # --- MERGE
    ("MERGE", "", "append", "of other rows", APPEND, APPEND, "it does not say what it read, so it counts as reading all"),
    ("MERGE", "that names the rows that it matched", "append", "", PASSES, APPEND, "it depends only on the rows it names"),
    ("MERGE", "", "overwrite", "", DELETE, APPEND, "ours would restore the row"),
    ("MERGE", "", "replaceWhere", "", DELETE, APPEND, "ours would restore the row"),
    ("MERGE", "", "replaceWhere", "of another range", READ, APPEND, "it does not say what it read, so it counts as reading all"),
    ("MERGE", "", "DELETE", "of the same row", DELETE, APPEND, "ours would restore the row"),
    ("MERGE", "", "DELETE", "of another row of the file", READ, APPEND, "it does not say what it read, so it counts as reading all"),
    ("MERGE", "that names the rows that it matched", "DELETE", "of another row of the file", PASSES, APPEND,
     "a row that it did not match"),
    ("MERGE", "that names the rows that it matched", "DELETE", "of a row that was matched", READ, APPEND,
     "without that row its source row would have been inserted"),
    ("MERGE", "", "UPDATE", "of the same row", DELETE, APPEND, "the row would exist twice"),
    ("MERGE", "", "UPDATE", "in another file", READ, APPEND, "it does not say what it read, so it counts as reading all"),
    ("MERGE", "that names the rows that it matched", "UPDATE", "in another file", PASSES, APPEND, "other rows"),
    ("MERGE", "", "MERGE", "of the same row", DELETE, APPEND, "the row would exist twice"),
    ("MERGE", "", "MERGE", "in another file", READ, APPEND, "it does not say what it read, so it counts as reading all"),
    ("MERGE", "that names the rows that it matched", "MERGE", "in another file", PASSES, APPEND, "other rows"),
    ("MERGE", "", "OPTIMIZE", "", PASSES, APPEND, _MAPPED),
    ("MERGE", "", "OPTIMIZE", "without a record of its sources", DELETE, APPEND, _NOT_TOLD),
    ("MERGE", "", "OPTIMIZE", "of another file", PASSES, APPEND, "the same rows in other files"),
    ("MERGE", "", "RESTORE", "", DELETE, APPEND, "ours would restore the row"),
    ("MERGE", "", "RESTORE", "that undoes deletes in the file", APPEND, APPEND, "ours did not see the restored row"),
    *_table("MERGE"),
    ("MERGE", "", "txn", "", APPEND, APPEND, _STREAM_MATTERS),
    # --- OPTIMIZE
    ("OPTIMIZE", "", "append", "", PASSES, PASSES, "it does not move the added rows"),
    ("OPTIMIZE", "", "overwrite", "", PASSES, READ, "all rows that it moved are deleted, so there is nothing to do"),
    ("OPTIMIZE", "", "replaceWhere", "", PASSES, READ, "deleted rows are deleted in the outputs"),
    ("OPTIMIZE", "", "DELETE", "of the same row", PASSES, READ, "the row is deleted in the output"),
    ("OPTIMIZE", "", "DELETE", "of the whole file", PASSES, READ, "deleted rows are deleted in the outputs"),
    ("OPTIMIZE", "", "DELETE", "by copying", PASSES, READ, "deleted or copied rows are deleted in the outputs"),
    ("OPTIMIZE", "of this file alone", "DELETE", "in another file", PASSES, PASSES, "other files"),
    ("OPTIMIZE", "without a record of its sources", "DELETE", "of the same row", DELETE, READ,
     "the row cannot be located in the outputs"),
    ("OPTIMIZE", "", "UPDATE", "of the same row", PASSES, READ, "the old row is deleted in the output"),
    ("OPTIMIZE", "", "MERGE", "of the same row", PASSES, READ, "the old row is deleted in the output"),
    ("OPTIMIZE", "", "OPTIMIZE", "", DELETE, READ, "one of the two is enough"),
    ("OPTIMIZE", "of this file alone", "OPTIMIZE", "of another file", PASSES, PASSES, "other files"),
    ("OPTIMIZE", "of each file by itself", "OPTIMIZE", "of another file", PASSES, READ, "ours leaves out that file and its output"),
    ("OPTIMIZE", "", "RESTORE", "", PASSES, READ, "deleted rows are deleted in the outputs"),
    ("OPTIMIZE", "", "RESTORE", "that undoes deletes in the file", APPEND, READ, "the restored row is not in the output"),
    *_table("OPTIMIZE"),
    ("OPTIMIZE", "", "txn", "", PASSES, PASSES, "it does not move the added rows"),
    # --- RESTORE
    ("RESTORE", "", "append", "", APPEND, APPEND, "the table would not match the restored version"),
    ("RESTORE", "", "overwrite", "", DELETE, APPEND, "the table would not match the restored version"),
    ("RESTORE", "", "replaceWhere", "of another range", READ, APPEND, "the table would not match the restored version"),
    ("RESTORE", "", "DELETE", "of the same row", DELETE, APPEND, "the table would not match the restored version"),
    ("RESTORE", "", "DELETE", "in another file", READ, APPEND, "the table would not match the restored version"),
    ("RESTORE", "", "UPDATE", "of the same row", DELETE, APPEND, "the table would not match the restored version"),
    ("RESTORE", "", "MERGE", "of the same row", DELETE, APPEND, "the table would not match the restored version"),
    ("RESTORE", "", "OPTIMIZE", "", DELETE, APPEND, "it rewrote a file that ours removes"),
    ("RESTORE", "", "OPTIMIZE", "of another file", PASSES, APPEND, "the same rows in other files"),
    ("RESTORE", "", "RESTORE", "", DELETE, APPEND, "one of the two is enough"),
    *_table("RESTORE"),
    ("RESTORE", "", "txn", "", APPEND, APPEND, "the table would not match the restored version"),
    # --- metadata changes
    *((ours, "", winner, how, PASSES, PASSES, _NO_ROWS) for ours in ("metadata", "protocol") for winner, how in [
        ("append", ""),
        ("overwrite", ""),
        ("replaceWhere", ""),
        ("DELETE", "of the same row"),
        ("UPDATE", "of the same row"),
        ("MERGE", "of the same row"),
        ("OPTIMIZE", ""),
        ("RESTORE", ""),
        ("txn", ""),
    ]),
    ("metadata", "that has to hold for every row", "append", "", APPEND, PASSES, "a new row may violate the constraint"),
    ("metadata", "", "metadata", "", METADATA, METADATA, "each would undo the other"),
    ("metadata", "", "metadata", "on the allow-list", METADATA, METADATA, "each would undo the other"),
    ("metadata", "", "protocol", "", PASSES, PASSES, _NEW_FEATURE),
    ("metadata", "", "protocol", "that drops a feature", PROTOCOL, PROTOCOL, "the new metadata may use the dropped feature"),
    ("protocol", "", "metadata", "", METADATA, METADATA, "the required features may have changed"),
    ("protocol", "", "metadata", "on the allow-list", PASSES, PASSES, _ALLOWED),
    ("protocol", "", "protocol", "", PROTOCOL, PROTOCOL, "each would undo the other"),
    # --- txn
    *(("txn", "", winner, how, PASSES, PASSES, _BLIND) for winner, how in [
        ("append", ""),
        ("overwrite", ""),
        ("replaceWhere", ""),
        ("DELETE", "of the same row"),
        ("UPDATE", "of the same row"),
        ("MERGE", "of the same row"),
        ("OPTIMIZE", ""),
        ("RESTORE", ""),
        ("txn", "of another application"),
    ]),
    *_table("txn"),
    ("txn", "", "txn", "", TXN, TXN, "the application's transaction may already be committed; if it is, the answer says so"),
]  # fmt: skip


def rendered():
    """Return the matrix as the tables of docs/conflicts.md, one per operation of ours."""
    pages = []
    for ours, cells in groupby(
        sorted(CELLS, key=lambda cell: OPERATIONS.index(cell[0])), lambda cell: cell[0]
    ):
        lines = [
            f"### {ours}",
            "",
            "| ours | the winner | answer | delta-spark | because |",
            "|---|---|---|---|---|",
        ]
        ordered = sorted(cells, key=lambda cell: OPERATIONS.index(cell[2]))
        lines += [
            f"| {' '.join(filter(None, (ours, how)))} | {' '.join(filter(None, (winner, what)))} | {_said(answer)} "
            f"| {_said(spark)} | {reason} |"
            for _, how, winner, what, answer, spark, reason in ordered
        ]
        pages.append("\n".join(lines))
    return "\n\n".join(pages) + "\n"


def _said(answer):
    return answer if answer == PASSES else f"`{answer}`"


if __name__ == "__main__":
    sys.stdout.write(rendered())
