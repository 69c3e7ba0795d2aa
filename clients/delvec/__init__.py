"""Delvec: change rows of Delta Lake tables with deletion vectors.

::

    with delvec.connect() as lake:
        people = lake.table("/data/people")
        people.delete("age < 18")

All but the errors is imported when it is first used: Spark's executors import parts of this package in every
Python worker, and need neither HTTP nor SQL parsing.

Tested in `tests/architecture/test_start.py`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from delvec_engines.spark import typed_errors
from delvec_errors import commit_errors as _commits
from delvec_errors import request_errors as _requests
from delvec_errors import root as _root
from delvec_errors import table_errors as _tables
from delvec_errors.commit_errors import *  # noqa: F403
from delvec_errors.request_errors import *  # noqa: F403
from delvec_errors.root import *  # noqa: F403
from delvec_errors.table_errors import *  # noqa: F403

if TYPE_CHECKING:
    from delvec.connection import Connection
    from delvec.entry_point import connect
    from delvec.table import DeltaTable
    from delvec_commands.transaction import Metrics, Transaction
    from delvec_commands.vacuum import VacuumPlan
    from delvec_kernel.expressions.literals import lit
    from delvec_kernel.schema.types import (
        ArrayType,
        DataType,
        DecimalType,
        MapType,
        PrimitiveType,
        StructField,
        StructType,
    )

    __version__: str

__all__ = [
    "ArrayType",
    "Connection",
    "DataType",
    "DecimalType",
    "DeltaTable",
    "MapType",
    "Metrics",
    "PrimitiveType",
    "StructField",
    "StructType",
    "Transaction",
    "VacuumPlan",
    "__version__",
    "connect",
    "lit",
]
__all__ += _root.__all__
__all__ += _commits.__all__
__all__ += _requests.__all__
__all__ += _tables.__all__

_MODULES = {
    "ArrayType": "delvec_kernel.schema.types",
    "Connection": "delvec.connection",
    "DataType": "delvec_kernel.schema.types",
    "DecimalType": "delvec_kernel.schema.types",
    "DeltaTable": "delvec.table",
    "MapType": "delvec_kernel.schema.types",
    "Metrics": "delvec_commands.transaction",
    "PrimitiveType": "delvec_kernel.schema.types",
    "lit": "delvec_kernel.expressions.literals",
    "StructField": "delvec_kernel.schema.types",
    "StructType": "delvec_kernel.schema.types",
    "Transaction": "delvec_commands.transaction",
    "VacuumPlan": "delvec_commands.vacuum",
    "connect": "delvec.entry_point",
}

# pyspark is not imported here, only where it is used.
typed_errors.install()


if not TYPE_CHECKING:  # to type checkers an unknown name would be anything

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("delvec")
        if name not in _MODULES:
            from delvec_commands.peer_names import MODULE_HINTS, no_attribute

            raise no_attribute("module 'delvec'", name, MODULE_HINTS)
        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
