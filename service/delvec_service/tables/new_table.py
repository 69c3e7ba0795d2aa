"""A table to create, and its first version.

Tested in `tests/integration/service/tables/test_tables.py`.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delvec_kernel.actions.actions import Action
from delvec_kernel.alter_table.definition import Definition
from delvec_kernel.alter_table.first_version import first_version
from delvec_kernel.schema.column_mapping import physical_names
from delvec_kernel.schema.types import StructType
from delvec_service import VERSION

__all__ = ["ENGINE_INFO", "NewTable"]

ENGINE_INFO: Final = f"Delvec/{VERSION}"


@dataclass(frozen=True)
class NewTable:
    """A table to create.

    Attributes:
        schema: Delta's schema JSON.
        transaction_id: that of its version 0.
        is_managed: whether the catalog is to manage it.
    """

    schema: Mapping[str, Any]
    partition_columns: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    cluster_by: Sequence[str] = ()
    transaction_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    is_managed: bool = False

    def first_version(self, properties: Mapping[str, str], catalog_id: str) -> list[Action]:
        """Return the actions of version 0.

        Args:
            properties: of the table.
            catalog_id: the id that the table has in its catalog, if it is a managed one.

        Raises:
            InvalidSchema: or a sibling, see :func:`delvec_kernel.alter_table.first_version.first_version`.
        """
        definition = Definition(
            StructType.from_json(self.schema),
            self.partition_columns,
            properties,
            self.description,
            self.cluster_by,
        )
        return first_version(
            definition,
            catalog_id=catalog_id,
            metadata_id=str(uuid.uuid4()),
            new_name=physical_names(self.transaction_id),
            transaction_id=self.transaction_id,
            engine_info=ENGINE_INFO,
            now=time.time_ns() // 1_000_000,
        )
