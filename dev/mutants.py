"""Mutation testing: change one place of a module, and run the tests of that module.

    python dev/mutants.py [--only TEXT ...] [--count N] [--seed N] [--list]

A change (a mutant) that no test notices survives and is printed as a diff: a test is missing, or the change is
equivalent. Equivalent mutants are listed in dev/equivalent_mutants.toml with the reason, and count as killed. The modules are
those whose defects lose rows. Works on a copy of the repository, in one process, so other tests can run at the same time.
"""

import argparse
import random
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mutant_changes import ROOT, Mutant, mutants
from mutant_runs import LONGEST_SECONDS, Copy, Outcome, import_others

EQUIVALENT: Final = ROOT / "dev" / "equivalent_mutants.toml"
_KERNEL: Final = "kernel/delvec_kernel/"
_SERVICE: Final = "service/delvec_service/"
_COMMANDS: Final = "kernel/delvec_commands/"
_ENGINES: Final = "kernel/delvec_engines/"
_MAINTENANCE: Final = "kernel/delvec_maintenance/"


class Subject(NamedTuple):
    """Modules (paths, or folders with all their modules) and the tests that must detect their defects."""

    modules: Sequence[str]
    tests: Sequence[str]


_CONFLICTS: Final = (
    *(
        "tests/unit/kernel/transaction/test_conflict_checker.py",
        "tests/unit/kernel/transaction/test_rebase.py",
        "tests/unit/kernel/transaction/test_compaction_rebase.py",
        "tests/unit/kernel/transaction/test_compaction_rebase_maps.py",
        "tests/unit/kernel/transaction/test_current_transaction.py",
        "tests/unit/kernel/transaction/test_metadata_conflicts.py",
        "tests/unit/kernel/transaction/test_group.py",
        "tests/unit/kernel/transaction/test_conflict_matrix.py",
    ),
    *(
        "tests/unit/kernel/transaction/test_row_runs.py",
        "tests/unit/kernel/transaction/test_conflict_histories.py",
    ),
    "tests/unit/kernel/transaction/test_row_maps.py",
)
_ROW_CHANGES: Final = (
    "tests/integration/client/dml/test_row_commands.py",
    "tests/integration/client/dml/test_found_rows.py",
    "tests/integration/engines/test_merge.py",
    "tests/integration/engines/test_update.py",
    "tests/integration/client/sql/test_self_reads.py",
    "tests/integration/engines/test_row_ids.py",
)
SUBJECTS: Final = (
    Subject(
        [
            _KERNEL + f"transaction/{name}.py"
            for name in (
                "conflict_checker",
                "rebase",
                "compaction_rebase",
                "current_transaction",
                "metadata_conflicts",
                "row_runs",
                "row_maps",
                "winning_commit",
                "group_commit",
            )
        ],
        _CONFLICTS,
    ),
    Subject(
        [_KERNEL + "transaction/commit_builder.py", _KERNEL + "deletion_vectors/dv_packing.py"],
        [
            "tests/unit/kernel/transaction/test_commit_builder.py",
            "tests/unit/engines/test_change_files.py",
            "tests/unit/kernel/deletion_vectors/test_dv_packing.py",
            "tests/integration/service/commits/test_written_vectors.py",
        ],
    ),
    Subject(
        [
            _KERNEL + "data_skipping",
            _KERNEL + "statistics/bounds.py",
            _KERNEL + "statistics/literal_bounds.py",
            _KERNEL + "statistics/merged_statistics.py",
            _KERNEL + "statistics/outer_bounds.py",
            _KERNEL + "statistics/typed_statistics.py",
        ],
        [
            *(
                "tests/unit/kernel/data_skipping/test_page_selection.py",
                "tests/unit/kernel/statistics/test_outer_bounds.py",
                "tests/unit/kernel/statistics/test_merged_statistics.py",
            ),
            *(
                "tests/unit/kernel/data_skipping/test_skipping.py",
                "tests/unit/kernel/data_skipping/test_file_selection.py",
            ),
            *(
                "tests/unit/kernel/statistics/test_typed_statistics.py",
                "tests/unit/kernel/data_skipping/test_generated_columns.py",
            ),
            "tests/unit/kernel/data_skipping/test_skipping_rows.py",
        ],
    ),
    Subject(
        [_KERNEL + "schema/file_types.py"],
        [
            "tests/unit/kernel/schema/test_file_types.py",
            "tests/integration/client/engines/duckdb/test_file_columns.py",
        ],
    ),
    Subject(
        [_MAINTENANCE + "vacuum", _SERVICE + "vacuum/vacuum_plan.py", _SERVICE + "vacuum/vacuum.py"],
        [
            *(
                "tests/unit/maintenance/vacuum/test_references.py",
                "tests/unit/maintenance/vacuum/test_vacuum_attack.py",
            ),
            "tests/integration/service/vacuum/test_vacuum.py",
        ],
    ),
    Subject(
        [_KERNEL + "file_index"],
        [
            *(
                "tests/unit/kernel/file_index/test_live_files.py",
                "tests/unit/kernel/file_index/test_packed_files.py",
                "tests/integration/service/store/test_file_index_engine.py",
                "tests/unit/kernel/file_index/test_file_clustering.py",
            ),
            *(
                "tests/unit/kernel/snapshot/test_replay.py",
                "tests/integration/service/snapshots/test_statistics_backlog.py",
                "tests/integration/contract/test_snapshot_store.py",
            ),
        ],
    ),
    Subject(
        [_KERNEL + "snapshot/replay.py", _KERNEL + "log/tombstones.py"],
        [
            "tests/unit/kernel/snapshot/test_replay.py",
            "tests/unit/kernel/log/test_tombstones.py",
            "tests/unit/kernel/log/test_checkpoint_reader.py",
        ],
    ),
    Subject(
        [_KERNEL + "log/expired_log_files.py", _SERVICE + "maintenance/log_cleanup.py"],
        [
            "tests/integration/service/maintenance/test_log_cleanup.py",
            "tests/integration/service/catalog/test_ratification.py",
        ],
    ),
    Subject(
        [
            _SERVICE + f"commits/{name}.py"
            for name in ("commit_loop", "commit_validator", "commit_log", "pending_commit", "overwrite_watch")
        ],
        [
            *(
                "tests/unit/service/commits/test_commit_log.py",
                "tests/integration/service/commits/test_commit_loop.py",
            ),
            *(
                "tests/integration/service/commits/test_commit_validator.py",
                "tests/integration/service/commits/test_overwrite_watch.py",
                "tests/integration/service/commits/test_commit.py",
                "tests/integration/service/commits/test_commit_queue.py",
                "tests/integration/service/commits/test_written_vectors.py",
                "tests/integration/service/commits/test_growing_commits.py",
                "tests/integration/service/test_dml.py",
                "tests/integration/service/test_lost_database.py",
            ),
        ],
    ),
    Subject(
        [
            _KERNEL + "transaction/commit_rules.py",
            *(
                _SERVICE + f"commits/{name}.py"
                for name in (
                    "commit_checks",
                    "metadata_changes",
                    "uploaded_dvs",
                    "dv_writer",
                    "dv_cache",
                )
            ),
        ],
        [
            *(
                "tests/unit/service/commits/test_dv_cache.py",
                "tests/integration/service/commits/test_written_vectors.py",
            ),
            *(
                "tests/integration/service/commits/test_write_changes.py",
                "tests/integration/service/commits/test_commit_checks.py",
            ),
            *(
                "tests/integration/service/commits/test_change_files.py",
                "tests/integration/service/commits/test_commit.py",
                "tests/integration/service/commits/test_commit_validator.py",
                "tests/integration/service/alter_table/test_alteration_commit.py",
                "tests/integration/service/alter_table/test_drop_feature.py",
                "tests/integration/service/commits/test_commits_by_id.py",
            ),
        ],
    ),
    Subject([_SERVICE + "commits/outcomes.py"], ["tests/integration/service/commits/test_idempotency.py"]),
    Subject(
        [_SERVICE + "commits/commit_queue.py"],
        [
            "tests/unit/service/commits/test_commit_queue.py",
            "tests/integration/service/commits/test_commit_queue.py",
        ],
    ),
    Subject(
        [_COMMANDS + f"dml/{name}.py" for name in ("merge", "update", "row_command", "touched_files")],
        _ROW_CHANGES,
    ),
    Subject(
        [_COMMANDS + "dml/delete.py", _ENGINES + "found_rows.py", _COMMANDS + "transaction.py"],
        [
            *(
                "tests/integration/client/dml/test_row_commands.py",
                "tests/integration/client/test_table.py",
            ),
            *(
                "tests/integration/client/dml/test_found_rows.py",
                "tests/integration/client/test_transactions.py",
                "tests/integration/client/test_bad_input.py",
                "tests/integration/client/test_notebooks.py",
            ),
        ],
    ),
    Subject(
        [_ENGINES + "duckdb/row_changes.py", _ENGINES + "row_changes.py"],
        ["tests/integration/client/engines/duckdb/test_row_changes.py", *_ROW_CHANGES],
    ),
    Subject(
        [_KERNEL + "deletion_vectors/deletion_vector.py", _KERNEL + "deletion_vectors/z85.py"],
        [
            "tests/unit/kernel/deletion_vectors/test_z85.py",
            "tests/unit/kernel/deletion_vectors/test_deletion_vector_codec.py",
        ],
    ),
)


def modules_of(subject: Subject) -> list[str]:
    """Return the paths of a subject's modules."""
    found = []
    for name in subject.modules:
        place = ROOT / name
        files = [place] if place.is_file() else sorted(place.rglob("*.py"))
        found += [str(file.relative_to(ROOT)) for file in files if file.name != "__init__.py"]
    return found


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """Return the reason for each equivalent mutant by its identifier."""
    entries = tomllib.loads(EQUIVALENT.read_text()).get("mutant", []) if EQUIVALENT.exists() else []
    return {(each["module"], each["in"], each["before"], each["after"]): each["reason"] for each in entries}


class Trial:
    """Tries samples of mutants, and counts outcomes.

    Args:
        copy: the copy to try them in; None to only list them.
        lines: first and last line to change; None for all.
    """

    def __init__(self, copy: Copy | None, *, count: int, seed: int, lines: Sequence[int] | None) -> None:
        self._copy = copy
        self._count = count
        self._seed = seed
        self._lines = range(lines[0], lines[1] + 1) if lines else range(sys.maxsize)
        self._same = equivalents()
        self.tried = 0
        self.equivalent = 0
        self.survived = 0

    def run(self, modules: Sequence[str], tests: Sequence[str]) -> None:
        """Try a sample of mutants of each of these modules with these tests.

        Raises:
            SystemExit: the tests fail without a change.
        """
        if self._copy is None:
            for module in modules:
                print("\n".join(mutant.diff() for mutant in self._sample(module)))
            return
        sample = [mutant for module in modules for mutant in self._sample(module)]
        tried = [mutant for mutant in sample if mutant.key not in self._same]
        left: Counter[str] = Counter()
        if tried:
            for mutant, outcome in zip(tried, self._copy.outcomes(tests, modules, tried), strict=True):
                left[mutant.module] += self._survives(self._copy, mutant, outcome, tests)
        self.tried += len(sample)
        self.equivalent += len(sample) - len(tried)
        self.survived += left.total()
        for module in modules:
            of = [mutant.key in self._same for mutant in sample if mutant.module == module]
            killed = len(of) - sum(of) - left[module]
            print(
                f"{module}: {killed} of {len(of)} killed, {sum(of)} equivalent, {left[module]} survived",
                flush=True,
            )

    def _sample(self, module: str) -> list[Mutant]:
        found = [each for each in mutants(module, (ROOT / module).read_text()) if each.line in self._lines]
        dice = random.Random(f"{self._seed} {module}")  # noqa: S311 - a sample that can be had again
        return dice.sample(found, min(self._count, len(found)))

    def _survives(self, copy: Copy, mutant: Mutant, outcome: Outcome, tests: Sequence[str]) -> bool:
        where = f"{mutant.module}:{mutant.line}"
        if outcome.means == "killed":
            print(f"killed: {where} by {outcome.test}", flush=True)
            return False
        if outcome.means == "import" and not copy.survives(mutant, tests, LONGEST_SECONDS):
            print(f"killed: {where}", flush=True)
            return False
        reason = ", as no test runs it" if outcome.means == "not run" else ""
        print(f"SURVIVED{reason}: {where}\n{mutant.diff()}", flush=True)
        return True


def main() -> int:
    """Run the command line: try the mutants, and print how many survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], help="modules whose path contains one of these")
    parser.add_argument("--count", type=int, default=5, help="mutants of each module (5)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--suite", choices=("gate", "full"), default="full", help="whose tests (full)")
    parser.add_argument("--tests", nargs="+", help="in place of those of the module")
    parser.add_argument("--lines", type=int, nargs=2, help="only mutants from one line to another")
    parser.add_argument("--list", action="store_true", help="show the sample, and run nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="delvec-mutants-") as folder:
        if not arguments.list:
            import_others()
        copy = None if arguments.list else Copy(Path(folder), arguments.suite)
        trial = Trial(copy, count=arguments.count, seed=arguments.seed, lines=arguments.lines)
        for subject in SUBJECTS:
            chosen = [each for each in modules_of(subject) if any(text in each for text in arguments.only)]
            trial.run(chosen, arguments.tests or subject.tests)
    killed, total = trial.tried - trial.survived, trial.tried
    if total:
        print(
            f"{killed} of {total} killed or equivalent ({100 * killed // total} %), {trial.equivalent} of them equivalent"
        )
    return int(bool(trial.survived))


if __name__ == "__main__":
    sys.exit(main())
