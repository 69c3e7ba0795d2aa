"""The commands of ``delvec``: where each is, and what the list of commands says of it.

A command's module is imported when the command is run or its own help is asked for. ``delvec --help`` needs no more
than this table.

Tested in `tests/architecture/test_start.py` and `tests/integration/client/cli/test_cli.py`.
"""

import copy
import importlib
from collections import UserDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from delvec_service.startup import garbage_collection_paused

__all__ = ["COMMANDS", "CommandEntry", "CommandGroup"]

_FLAGS: Final = frozenset({"--json"})
_OPTIONS: Final = frozenset({"--url", "--token", "--warehouse"})
_PANELS: Final = {
    "tables": "Tables",
    "alter": "Tables",
    "iceberg": "Tables",
    "rows": "Rows",
    "sql": "Rows",
    "inspection": "Inspecting tables",
    "health": "Inspecting tables",
    "maintenance": "Looking after tables",
    "vacuum": "Looking after tables",
    "policies": "Looking after tables",
    "serve": "The service",
    "doctor": "The service",
    "database": "The service",
    "access": "The service",
}
"""The group of a module's commands in the list of commands."""


class CommandEntry(NamedTuple):
    """A command.

    Attributes:
        module: the module of ``delvec.cli``.
        attribute: the attribute of the module: a function, or a ``Typer`` with subcommands.
        summary: the first paragraph of the command's help.
    """

    module: str
    attribute: str
    summary: str


COMMANDS: Final[dict[str, CommandEntry]] = {
    "serve": CommandEntry("serve", "serve", "Run the service until interrupted."),
    "doctor": CommandEntry(
        "doctor",
        "doctor",
        "Check everything `delvec serve` needs and suggest fixes: settings, database, storage, clocks, Java and "
        "PySpark.",
    ),
    "create": CommandEntry("tables", "create", "Create an empty table, with deletion vectors enabled."),
    "clone": CommandEntry(
        "tables",
        "clone",
        "Clone a table as of any version, deletion vectors included.",
    ),
    "convert": CommandEntry(
        "tables",
        "convert",
        "Convert a directory of Parquet files to a Delta table in place.",
    ),
    "tables": CommandEntry("tables", "tables", "List the registered tables."),
    "register": CommandEntry("tables", "register", "Register the Delta table at a location under a name."),
    "rename": CommandEntry(
        "tables",
        "rename",
        "Rename a registered table. Its files stay where they are.",
    ),
    "drop": CommandEntry(
        "tables",
        "drop",
        "Unregister a table. Its files stay where they are; `delvec undrop` brings a managed table back.",
    ),
    "undrop": CommandEntry("tables", "undrop", "Bring back a managed table that was dropped."),
    "append": CommandEntry("rows", "append", "Append the rows of a file."),
    "overwrite": CommandEntry(
        "rows", "overwrite", "Replace all rows, or some of them, with the rows of a file."
    ),
    "read": CommandEntry("rows", "read", "Print rows, or write them to a file."),
    "changes": CommandEntry(
        "rows",
        "changes",
        "Print the rows that a range of versions inserted, updated or deleted, or write them to a file.",
    ),
    "delete": CommandEntry("rows", "delete", "Delete rows."),
    "update": CommandEntry("rows", "update", "Set columns of rows."),
    "merge": CommandEntry(
        "rows",
        "merge",
        "Merge the rows of a file into the table: update those with the same key, and insert the others.",
    ),
    "sql": CommandEntry(
        "sql", "sql", "Run one SQL statement. Refer to a table by name, or as delta.`/path`."
    ),
    "history": CommandEntry("inspection", "history", "List the table's commits, newest first."),
    "detail": CommandEntry("inspection", "detail", "Show the table's schema, properties, protocol and size."),
    "health": CommandEntry(
        "health",
        "health",
        "Show what maintenance a table needs; without TABLE, list the tables that need it most.",
    ),
    "conflicts": CommandEntry(
        "inspection",
        "conflicts",
        "List commits to the table that lost to a concurrent commit, and the versions that won.",
    ),
    "events": CommandEntry(
        "inspection",
        "events",
        "List what happened to tables of a service: commits, conflicts, maintenance, health. With --json one event a "
        "line.",
    ),
    "tasks": CommandEntry(
        "inspection",
        "tasks",
        "List running OPTIMIZE and PURGE of the table, wherever they run: bytes done, rate, time left.",
    ),
    "checkpoint": CommandEntry(
        "maintenance",
        "checkpoint",
        "Write a checkpoint of the newest version, so that readers can skip the log before it.",
    ),
    "vacuum": CommandEntry(
        "vacuum",
        "vacuum",
        "Delete files that no retained version and no commit in progress needs.",
    ),
    "check": CommandEntry(
        "maintenance",
        "check",
        "Check every version of the log and the live files in storage; exit with 1 if there are errors.",
    ),
    "optimize": CommandEntry(
        "maintenance",
        "optimize",
        "Compact small files and files with many deleted rows. The table's rows do not change.",
    ),
    "compute-statistics": CommandEntry(
        "maintenance",
        "compute_statistics",
        "Fill in missing file statistics, and tighten bounds that deletes have left wide.",
    ),
    "repair": CommandEntry(
        "maintenance",
        "repair",
        "Repair the findings of `delvec check` that have one safe fix; exit with 1 if errors remain.",
    ),
    "restore": CommandEntry(
        "maintenance",
        "restore",
        "Restore the table to an earlier version. Its history is kept.",
    ),
    "downgrade": CommandEntry(
        "maintenance",
        "downgrade",
        "Make the table readable by clients without deletion vector support, step by step.",
    ),
    "generate": CommandEntry(
        "maintenance",
        "generate",
        "Write manifests of the data files for engines that cannot read the Delta log, such as Hive, Athena or Presto.",
    ),
    "maintain": CommandEntry(
        "policies",
        "maintain",
        "Run the maintenance that policies ask for: compaction, PURGE, deletion vector compaction, checkpoints, "
        "VACUUM.",
    ),
    "grant": CommandEntry(
        "access",
        "grant",
        "Grant a role on a table, a name pattern, a namespace or everything.",
    ),
    "revoke": CommandEntry("access", "revoke", "Revoke a role."),
    "grants": CommandEntry("access", "grants", "List the granted roles."),
    "audit": CommandEntry("access", "audit", "List changes and denied attempts, newest first."),
    "iceberg": CommandEntry("iceberg", "app", "Import tables from Apache Iceberg, and publish tables to it."),
    "alter": CommandEntry(
        "alter",
        "app",
        "Alter a table's columns, properties, constraints or protocol. Each command is one commit.",
    ),
    "quarantine": CommandEntry("vacuum", "app", "List, undo and purge the quarantines of VACUUM."),
    "policy": CommandEntry("policies", "app", "Set, list and drop maintenance policies."),
    "database": CommandEntry("database", "app", "Migrate, back up and restore the SQL store of a service."),
    "token": CommandEntry("access", "app", "Create, list and revoke bearer tokens of a service."),
}


class _Commands(UserDict[str, Any]):
    """The commands by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.data and name in COMMANDS:
            self.data[name] = _load(name, COMMANDS[name])
        return self.data[name]

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _load(name: str, entry: CommandEntry) -> Any:
    with garbage_collection_paused():
        module = importlib.import_module(f"delvec.cli.{entry.module}")
    found = getattr(module, entry.attribute)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    if not isinstance(found, typer.Typer):
        alone.command(name)(found)
        return get_command(alone)
    alone.add_typer(found, name=name)
    group: Any = get_command(alone)
    return group.commands[name]


class CommandGroup(TyperGroup):
    """Imports commands when they are used, and takes the global options on either side of the command's name."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Commands()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the global options to the front."""
        first: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word in _FLAGS or word.partition("=")[0] in _OPTIONS:
                first.append(word)
                if word in _OPTIONS:
                    first += [value for value in [next(words, None)] if value is not None]
            else:
                rest.append(word)
        return super().parse_args(ctx, first + rest)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as typer calls it
        """Return the names of the commands."""
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, for which the summaries are enough."""
        TyperGroup.format_help(self._summarised(), ctx, formatter)

    def _summarised(self) -> "CommandGroup":
        summarised = copy.copy(self)
        summarised.commands = {
            name: TyperCommand(name, help=entry.summary, rich_help_panel=_PANELS[entry.module])
            for name, entry in COMMANDS.items()
        }
        return summarised
