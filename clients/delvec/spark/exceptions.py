"""The exceptions of ``delta.exceptions`` under their names; each is one of Delvec's own.

``from delvec.spark.exceptions import ConcurrentAppendException`` is the only change that a program written for
delta-spark needs. Unlike there, ``DeltaConcurrentModificationException`` is the base of the others.
"""

from delvec_kernel.errors import ConcurrentAppend as ConcurrentAppendException
from delvec_kernel.errors import ConcurrentDeleteDelete as ConcurrentDeleteDeleteException
from delvec_kernel.errors import ConcurrentDeleteRead as ConcurrentDeleteReadException
from delvec_kernel.errors import ConcurrentModification as DeltaConcurrentModificationException
from delvec_kernel.errors import ConcurrentTransaction as ConcurrentTransactionException
from delvec_kernel.errors import ConcurrentWrite as ConcurrentWriteException
from delvec_kernel.errors import MetadataChanged as MetadataChangedException
from delvec_kernel.errors import ProtocolChanged as ProtocolChangedException

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
