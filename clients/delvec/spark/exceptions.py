"""The exceptions of ``delta.exceptions`` by their names; each is one of Delvec's own.

``from delvec.spark.exceptions import ConcurrentAppendException`` is all that a program written for delta-spark
changes. Unlike there, ``DeltaConcurrentModificationException`` is the base of the others.
"""

from delvec.protocol.errors import (
    ConcurrentAppend as ConcurrentAppendException,
)
from delvec.protocol.errors import (
    ConcurrentDeleteDelete as ConcurrentDeleteDeleteException,
)
from delvec.protocol.errors import (
    ConcurrentDeleteRead as ConcurrentDeleteReadException,
)
from delvec.protocol.errors import (
    ConcurrentModification as DeltaConcurrentModificationException,
)
from delvec.protocol.errors import (
    ConcurrentTransaction as ConcurrentTransactionException,
)
from delvec.protocol.errors import (
    ConcurrentWrite as ConcurrentWriteException,
)
from delvec.protocol.errors import (
    MetadataChanged as MetadataChangedException,
)
from delvec.protocol.errors import (
    ProtocolChanged as ProtocolChangedException,
)

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
]
