"""The exceptions of ``delta.exceptions`` under their names; each is one of Delvec's own.

``from delvec.spark.exceptions import ConcurrentAppendException`` is the only change that a program written for
delta-spark needs. Unlike there, ``DeltaConcurrentModificationException`` is the base of the others.
"""

from delvec_errors import ConcurrentAppend as ConcurrentAppendException
from delvec_errors import ConcurrentDeleteDelete as ConcurrentDeleteDeleteException
from delvec_errors import ConcurrentDeleteRead as ConcurrentDeleteReadException
from delvec_errors import ConcurrentModification as DeltaConcurrentModificationException
from delvec_errors import ConcurrentTransaction as ConcurrentTransactionException
from delvec_errors import ConcurrentWrite as ConcurrentWriteException
from delvec_errors import MetadataChanged as MetadataChangedException
from delvec_errors import ProtocolChanged as ProtocolChangedException

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
