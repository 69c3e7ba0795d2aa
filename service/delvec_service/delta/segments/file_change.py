"""What a run of commits does to one file."""

from dataclasses import dataclass, field

from delvec.protocol.deletion_vector import Descriptor
from delvec_service.delta.actions import AddFile

__all__ = ["FileChange"]


@dataclass(slots=True)
class FileChange:
    """What a run of commits does to one file.

    Attributes:
        add: what the file is from now on; None where nothing was added.
        removed: ids of the deletion vectors that it must not have any more to stay; None is "no deletion vector".
    """

    add: AddFile | None = None
    removed: set[str | None] = field(default_factory=set)

    @classmethod
    def to(cls, add: AddFile | None) -> "FileChange":
        """Return the change that makes a file ``add``, or no live file, whatever it was before."""
        return cls(add, _Everything())

    def follow(self, add: AddFile | None, removed: Descriptor | None, *, is_removed: bool) -> None:
        """Add what the next version does; its add wins over its remove, whatever their order in the file."""
        if add is not None:
            self.add = add
        elif is_removed:
            dv_id = _id(removed)
            if self.add is None:
                self.removed.add(dv_id)
            elif _id(self.add.deletion_vector) == dv_id:
                # From here on the file is gone, whatever it was before the add.
                self.add = None
                self.removed = _Everything()


class _Everything(set[str | None]):
    """The ids of all deletion vectors."""

    def __contains__(self, item: object) -> bool:
        return True


def _id(descriptor: Descriptor | None) -> str | None:
    return None if descriptor is None else descriptor.unique_id
