"""The commands of ``delvec``: where each is, and what the list of commands says of it.

A command's module is imported when the command is run or its own help is asked for. ``delvec --help`` needs no more
than this table.
"""

import copy
import importlib
from collections import UserDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

__all__ = ["COMMANDS", "CommandGroup", "Entry"]

_FLAGS: Final = frozenset({"--json"})
_OPTIONS: Final = frozenset({"--url", "--token", "--warehouse"})


class Entry(NamedTuple):
    """A command.

    Attributes:
        module: of ``delvec.cli``.
        attribute: of the module: a function, or a ``Typer`` with commands of its own.
        summary: the first paragraph of the command's help.
    """

    module: str
    attribute: str
    summary: str


COMMANDS: Final[dict[str, Entry]] = {
    "serve": Entry("serve", "serve", "Run the service until it is interrupted."),
    "doctor": Entry(
        "doctor",
        "doctor",
        "Check what `delvec serve` needs, and say what to do: settings, database, storage, clocks, Java and PySpark.",
    ),
    "create": Entry("tables", "create", "Create an empty table, with deletion vectors enabled."),
    "clone": Entry(
        "tables",
        "clone",
        "Make another table what a table is at some version, deletion vectors included.",
    ),
    "convert": Entry(
        "tables",
        "convert",
        "Make a table of the Parquet files of a directory, without changing them.",
    ),
    "tables": Entry("tables", "tables", "List the tables that are registered."),
    "register": Entry("tables", "register", "Give the Delta table at a location a name."),
    "rename": Entry(
        "tables",
        "rename",
        "Give a registered table another name. Its files stay where they are.",
    ),
    "drop": Entry("tables", "drop", "Forget a table and its name. Its files stay where they are."),
    "append": Entry("rows", "append", "Add the rows of a file."),
    "overwrite": Entry("rows", "overwrite", "Replace all rows, or some, by the rows of a file."),
    "read": Entry("rows", "read", "Print rows, or write them to a file."),
    "changes": Entry(
        "rows",
        "changes",
        "Print the rows that versions inserted, deleted and updated, or write them to a file.",
    ),
    "delete": Entry("rows", "delete", "Delete rows."),
    "sql": Entry("sql", "sql", "Run one SQL statement; a table is its name, or delta.`/path`."),
    "history": Entry("inspection", "history", "List the table's commits, newest first."),
    "detail": Entry("inspection", "detail", "Show what the table is: schema, properties, protocol, size."),
    "health": Entry(
        "inspection",
        "health",
        "Show how much care a table needs, and what to do; without TABLE, which tables need most.",
    ),
    "conflicts": Entry(
        "inspection",
        "conflicts",
        "List the races that commits to the table lost: who wanted what, and which version was first.",
    ),
    "checkpoint": Entry(
        "maintenance",
        "checkpoint",
        "Write a checkpoint of the newest version, so that readers need not read the log before it.",
    ),
    "vacuum": Entry(
        "vacuum",
        "vacuum",
        "Delete the files that neither a retained version nor a commit under way needs.",
    ),
    "check": Entry(
        "maintenance",
        "check",
        "Check the log version by version, and the live files in storage; exit code 1 where an error is found.",
    ),
    "optimize": Entry(
        "maintenance",
        "optimize",
        "Write small files together, and files of which many rows are deleted; the rows stay the same.",
    ),
    "compute-statistics": Entry(
        "maintenance",
        "compute_statistics",
        "Make bounds of files tight again that deletes have left wide, and fill in missing statistics.",
    ),
    "repair": Entry(
        "maintenance",
        "repair",
        "Put right what a check finds and has one right answer; exit code 1 where an error is left.",
    ),
    "restore": Entry(
        "maintenance",
        "restore",
        "Make the table what it was at an earlier version; its history stays.",
    ),
    "downgrade": Entry(
        "maintenance",
        "downgrade",
        "Make the table readable by those that do not know deletion vectors, step by step.",
    ),
    "generate": Entry(
        "maintenance",
        "generate",
        "Write manifests that list the data files, for readers that know no Delta log, such as Hive, Athena or Presto.",
    ),
    "maintain": Entry(
        "policies",
        "maintain",
        "Look after tables as their policies ask: compaction, PURGE, compaction of deletion vectors, checkpoints, VACUUM.",
    ),
    "grant": Entry(
        "access",
        "grant",
        "Grant a role on a table, on a pattern of names, on a namespace or on everything.",
    ),
    "revoke": Entry("access", "revoke", "Take a role away from where it was granted."),
    "grants": Entry("access", "grants", "List who may what."),
    "audit": Entry("access", "audit", "List who changed what, and who was not allowed to, the newest first."),
    "iceberg": Entry("iceberg", "app", "Exchange tables with Apache Iceberg."),
    "alter": Entry(
        "alter",
        "app",
        "Change a table itself: columns, properties, constraints, protocol; each command is one commit.",
    ),
    "quarantine": Entry("vacuum", "app", "List, undo and purge what VACUUM has moved away."),
    "policy": Entry("policies", "app", "Set, list and drop maintenance policies."),
    "database": Entry("database", "app", "Look after the SQL store of a service."),
    "token": Entry("access", "app", "Create, list and revoke bearer tokens of a service."),
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


def _load(name: str, entry: Entry) -> Any:
    found = getattr(importlib.import_module(f"delvec.cli.{entry.module}"), entry.attribute)
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
            name: TyperCommand(name, help=entry.summary) for name, entry in COMMANDS.items()
        }
        return summarised
