"""The only serialisation in the package: trees of tensors to flat dictionaries, and back.

A tree is a NamedTuple of Vectors, Tensors, mappings from names to Tensors, tuples and NamedTuples.
`pack` names each tensor by its path, such as `w/body.0.weight`; `unpack` takes the NamedTuple's
annotations as the schema. A packed tree holds names and tensors only, never code.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from fedadb.core.errors import Fault
from fedadb.core.vector import Layout, Vector

Tree = TypeVar("Tree")


def pack(tree: Any, under: str = "") -> dict[str, Tensor]:
    """The tree's tensors by path, below the path `under`; they share memory with the tree."""
    return dict(_walk(tree, under))


def _walk(tree: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Vector):
        for name, tensor in tree.views().items():
            yield _join(path, name), tensor
    elif isinstance(tree, Tensor):
        yield path, tree
    elif isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from _walk(value, _join(path, name))
    elif isinstance(tree, tuple):
        for field, value in zip(_field_names(tree), tree, strict=True):
            yield from _walk(value, _join(path, field))
    else:
        raise TypeError(f"{path or 'the tree'} is {tree!r}: not a Vector, a Tensor or a NamedTuple")


def size(tree: Any) -> int:
    """The number of bytes of its tensors."""
    return sum(tensor.nbytes for _, tensor in _walk(tree, ""))


def kind_of(tree: Any) -> Any:
    """The kind from which `unpack` rebuilds such a tree: its class, or `tuple[…]`."""
    kind: Any = type(tree)
    if kind is tuple:
        return tuple[tuple(kind_of(value) for value in tree)]  # type: ignore[misc]
    if not (parameters := getattr(kind, "__parameters__", ())):
        return kind
    hints = get_type_hints(kind)
    given = {hints[field]: kind_of(getattr(tree, field)) for field in _field_names(tree)}
    return kind[tuple(given[parameter] for parameter in parameters)]


def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of the tree by its path."""
    return {path: tuple(tensor.shape) for path, tensor in _walk(tree, "")}


def unpack(kind: type[Tree], tensors: Mapping[str, Tensor], layout: Layout) -> Tree:
    """Rebuild a tree of that kind, whose Vectors have that layout, from copies of its tensors."""
    left = dict(tensors)
    tree = _build(kind, "", left, layout)
    if left:
        raise Fault(f"{getattr(kind, '__name__', kind)} has no field for {_some(left)}")
    return cast(Tree, tree)


def _build(kind: Any, path: str, left: dict[str, Tensor], layout: Layout) -> Any:
    if kind is Vector:
        parts = {}
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            part = parts[name] = _take(left, _join(path, name))
            if tuple(part.shape) != shape:
                raise Fault(
                    f"{_join(path, name)} has shape {tuple(part.shape)}; the model has {shape}"
                )
        dtypes = {part.dtype for part in parts.values()}
        if len(dtypes) > 1 or not all(dtype.is_floating_point for dtype in dtypes):
            raise Fault(f"{path or 'the vector'} must have one floating-point type, not {dtypes}")
        return Vector(torch.cat([part.reshape(-1) for part in parts.values()]), layout)
    if kind is Tensor:
        return _take(left, path).clone()
    kind, arguments = get_origin(kind) or kind, get_args(kind)
    if kind is tuple:
        return tuple(_build(a, _join(path, str(i)), left, layout) for i, a in enumerate(arguments))
    if kind is Mapping:  # of names to tensors
        names = [name for name in left if name.startswith(path + "/")]
        return {name.removeprefix(path + "/"): left.pop(name).clone() for name in names}
    if not (isinstance(kind, type) and issubclass(kind, tuple)):
        raise TypeError(f"{path} is annotated {kind}: not a Vector, a Tensor or a NamedTuple")
    hints = get_type_hints(kind)
    given = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))
    kinds = {field: given.get(hints[field], hints[field]) for field in _field_names(kind)}
    return kind(*(_build(one, _join(path, field), left, layout) for field, one in kinds.items()))


def _field_names(tree: Any) -> Sequence[str]:
    """The names of a NamedTuple's fields, or the positions in a tuple."""
    if hasattr(tree, "_fields"):
        names: Sequence[str] = tree._fields
        return names
    return [str(i) for i in range(len(tree))]


def _take(left: dict[str, Tensor], path: str) -> Tensor:
    if path not in left:
        raise Fault(f"{path} is missing; found {_some(left)}")
    return left.pop(path)


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _some(names: Mapping[str, Any]) -> str:
    first = ", ".join(list(names)[:3]) or "nothing"
    return first + (f" and {len(names) - 3} more" if len(names) > 3 else "")
