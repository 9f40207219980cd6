"""Comments beside the fields of a class as their documentation."""

from pathlib import Path
from typing import Any

import griffe

from fedadb.experiment.declarations import field_comment


class FieldComments(griffe.Extension):
    """Documents a field by the comment above it, or at the end of its line."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Take the comment of an attribute that has an annotation."""
        if attr.docstring or attr.annotation is None or attr.lineno is None:
            return
        assert isinstance(attr.filepath, Path)  # a list of them is a namespace's
        if text := field_comment(attr.lines_collection[attr.filepath], attr.lineno, attr.endlineno):
            attr.docstring = griffe.Docstring(text, parent=attr)
