"""Structs with every field set, made from their definitions: a field that is added is set by itself."""

from __future__ import annotations

from itertools import count
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from dra_extender.api.meta import IGNORED, Ignored
from dra_extender.api.quantity import Quantity

T = TypeVar("T")


def specimen(kind: type[T]) -> T:
    """A struct of this type, and all structs in it, without any field at its default; no two texts or numbers are
    equal.
    """
    return cast(T, _value(inspect.type_info(kind), count(1)))


def field_specimens(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """A value other than the default for each field of the struct."""
    return {name: getattr(specimen(kind), name) for name in kind.__struct_fields__}


def _value(kind: inspect.Type, numbers: count[int]) -> Any:
    match kind:
        case inspect.StructType():
            fields = {field.name: _value(field.type, numbers) for field in kind.fields}
            return kind.cls(**fields)
        case inspect.UnionType():
            return _value(next(member for member in kind.types if not isinstance(member, inspect.NoneType)), numbers)
        case inspect.VarTupleType():
            return (_value(kind.item_type, numbers),)
        case inspect.TupleType():
            return tuple(_value(item, numbers) for item in kind.item_types)
        case inspect.DictType():
            return {_value(kind.key_type, numbers): _value(kind.value_type, numbers)}
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.StrType():
            return f"text{next(numbers)}"
        case inspect.IntType():
            return next(numbers)
        case inspect.BoolType():
            return True
        case inspect.RawType():
            return msgspec.Raw(msgspec.json.encode({"number": next(numbers)}))
        case inspect.CustomType() if kind.cls is Quantity:
            return Quantity.parse(f"{next(numbers)}Mi")
        case inspect.CustomType() if kind.cls is Ignored:
            return IGNORED
    raise NotImplementedError(f"a specimen of {kind}")
