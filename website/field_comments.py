"""Comments beside the fields of a class as their documentation."""

from pathlib import Path
from typing import Any

import griffe

from fedadb.experiment.declarations import Declaration, meanings


class FieldComments(griffe.Extension):
    """Documents a field by the comment above it, or at the end of its line."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Take the comments of a class at the top of its module."""
        if not isinstance(cls.filepath, Path) or not isinstance(cls.parent, griffe.Module):
            return
        for name, meaning in meanings(Declaration(cls.filepath, cls.name)).items():
            field = cls.members.get(name)
            if meaning and isinstance(field, griffe.Attribute) and not field.docstring:
                field.docstring = griffe.Docstring(meaning, parent=field)
