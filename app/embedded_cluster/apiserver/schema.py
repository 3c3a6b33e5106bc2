"""What objects look like: every field of every served kind with its type, read from the models of kubernetes-asyncio.

That client library is generated from Kubernetes' OpenAPI document and is a dependency anyway, so the field names
and types need no table of ours. What the models do not say (which lists are maps with keys, which structs are
atomic, which strings are quantities) is in topology.py. `Schema.admit` turns what a client sent into the canonical
form: unknown fields dropped (and reported), nulls and empty lists and maps left out as Go's `omitempty` does, wrong
types refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import GenericAlias
from typing import Annotated, Any, Final, Literal

import kubernetes_asyncio.client.models as models
import msgspec

from dra_extender.api.quantity import Quantity
from embedded_cluster.apiserver import topology
from embedded_cluster.apiserver.statuses import JSON, bad_request

INT_OR_STRING: Final = "intOrString"

Form = Literal["scalar", "any", "struct", "map", "list"]

_INT32: Final = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TIME: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"
_SCALARS: Final[dict[str, Any]] = {
    "str": str,
    "int": _INT32,
    "float": float,
    "bool": bool,
    "datetime": Annotated[str, msgspec.Meta(pattern=_TIME)],
    "date": str,
    "int64": _INT64,
    INT_OR_STRING: _INT32 | str,
}
"""Type -> what the decoder takes."""


@dataclass(eq=False)
class FieldSchema:
    """The type of one field. For lists, `keys` names what identifies an item when the list is a map, and `unique` says
    that it is a set; `patch_key` is the key strategic merge patches use. `atomic` structs, maps and lists have one
    owner."""

    form: Form
    name: str
    element: FieldSchema | None = None
    keys: tuple[str, ...] = ()
    unique: bool = False
    atomic: bool = False
    patch_key: str = ""
    patch_merge: bool = False
    retain_keys: bool = False
    quantity: bool = False
    fields: dict[str, FieldSchema] = field(default_factory=dict)
    required: frozenset[str] = frozenset()

    @cached_property
    def decoder_type(self) -> Any:
        """The msgspec type that accepts exactly this shape."""
        if self.form == "scalar":
            return str | int | float if self.quantity else _SCALARS[self.name]
        if self.form == "any" or (self.form != "struct" and self.element is None):
            return Any
        if self.form == "list":
            return GenericAlias(list, (self.element.decoder_type,)) if self.element else list[Any]
        if self.form == "map":
            return GenericAlias(dict, (str, self.element.decoder_type)) if self.element else dict[str, Any]
        return self._struct()

    @cached_property
    def measured(self) -> tuple[str, ...]:
        """The fields of a struct that are quantities or contain some."""
        return tuple(name for name, inner in self.fields.items() if inner.has_quantity)

    @cached_property
    def has_quantity(self) -> bool:
        """True when this is or contains a quantity."""
        if self.form == "struct":
            return bool(self.measured)
        return self.quantity if self.element is None else self.element.has_quantity

    def _struct(self) -> Any:
        definitions: list[tuple[str, Any, Any]] = []
        rename: dict[str, str] = {}
        for position, (name, shape) in enumerate(self.fields.items()):
            attribute = f"f{position}"
            rename[attribute] = name
            kind = shape.decoder_type
            if shape.form == "list":
                definitions.append((attribute, kind, msgspec.field(default_factory=list)))
            elif shape.form == "map":
                definitions.append((attribute, kind, msgspec.field(default_factory=dict)))
            else:
                definitions.append((attribute, kind | None if kind is not Any else Any, msgspec.field(default=None)))
        return msgspec.defstruct(
            self.name or "Object",
            definitions,
            rename=rename,
            omit_defaults=True,
            forbid_unknown_fields=True,
            kw_only=True,
            gc=False,
        )


_structs: dict[str, FieldSchema] = {}
_ANY: Final = FieldSchema("any", "object")


def struct(name: str) -> FieldSchema:
    """The shape of a model such as `V1Pod`; AttributeError when kubernetes-asyncio has none of that name."""
    shape = _structs.get(name)
    if shape is None:
        model = getattr(models, name)
        base = topology.base_name(name)
        shape = _structs[name] = FieldSchema("struct", name, atomic=base in topology.ATOMIC_STRUCTS)
        for attribute, kind in model.openapi_types.items():
            json_name = model.attribute_map[attribute]
            if (base, json_name) in topology.GONE:
                continue
            shape.fields[json_name] = _field(kind, base, json_name)
    return shape


def _field(kind: str, owner: str, name: str) -> FieldSchema:
    if (owner, name) in topology.INT_OR_STRING:
        kind = INT_OR_STRING
    elif name in topology.INT64:
        kind = kind.replace("int", "int64")
    shape = _typed(kind, quantity=(owner, name) in topology.QUANTITIES)
    rule = topology.LISTS.get((owner, name))
    if shape.form == "list":
        if rule is None:
            shape.atomic = True
        else:
            shape.keys = rule.keys
            shape.unique = rule.unique
            shape.atomic = not rule.keys and not rule.unique
            shape.patch_key = rule.patch_key
            shape.patch_merge = bool(rule.patch_key) or rule.patch_merge
            shape.retain_keys = rule.retain_keys
    if shape.form == "map" and (owner, name) in topology.ATOMIC_MAPS:
        shape.atomic = True
    return shape


def _typed(kind: str, quantity: bool) -> FieldSchema:
    if kind.startswith("list["):
        return FieldSchema("list", kind, element=_typed(kind[5:-1], quantity))
    if kind.startswith("dict("):
        return FieldSchema("map", kind, element=_typed(kind[5:-1].split(", ", 1)[1], quantity))
    if kind == "object":
        return _ANY
    if kind in _SCALARS:
        return FieldSchema("scalar", kind, quantity=quantity)
    return struct(kind)


class Schema:
    """Admits objects of one model."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.shape = struct(model)
        self._type = self.shape.decoder_type

    def admit(self, obj: JSON) -> tuple[JSON, list[str]]:
        """The canonical form of `obj` (a new object) and the paths of the fields that were dropped as unknown.

        Raises 400 when a field has the wrong type.
        """
        unknown: list[str] = []
        try:
            admitted = msgspec.to_builtins(msgspec.convert(obj, self._type))
        except msgspec.ValidationError:
            pruned = _prune(obj, self.shape, "", unknown)
            try:
                admitted = msgspec.to_builtins(msgspec.convert(pruned, self._type))
            except msgspec.ValidationError as error:
                raise bad_request(self._explain(obj, error)) from None
        try:
            _canonical_quantities(admitted, self.shape)
        except ValueError as error:
            raise bad_request(self._explain(obj, error)) from None
        return admitted, unknown

    def _explain(self, obj: JSON, error: Exception) -> str:
        version = str(obj.get("apiVersion", "")).rpartition("/")[2]
        kind = obj.get("kind", self.model)
        text = str(error).replace("`", "").replace("$.", ".")
        return f'{kind} in version "{version}" cannot be handled as a {kind}: json: {text}'


def _prune(value: Any, shape: FieldSchema, path: str, unknown: list[str]) -> Any:
    """`value` without null fields and without those the shape does not know; their paths are appended to `unknown`."""
    if shape.form == "struct" and isinstance(value, dict):
        kept: JSON = {}
        for name, item in value.items():
            inner = shape.fields.get(name)
            here = f"{path}.{name}" if path else name
            if inner is None:
                if (topology.base_name(shape.name), name) not in topology.SILENTLY_DROPPED:
                    unknown.append(here)
            elif item is not None:
                kept[name] = _prune(item, inner, here, unknown)
        return kept
    if shape.form == "map" and isinstance(value, dict) and shape.element is not None:
        element = shape.element
        return {k: _prune(_said(v, element), element, f"{path}.{k}", unknown) for k, v in value.items()}
    if shape.form == "list" and isinstance(value, list) and shape.element is not None:
        element = shape.element
        return [_prune(_said(item, element), element, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
    return value


def _said(value: Any, shape: FieldSchema) -> Any:
    """A null in a list or a map is the empty value of its type."""
    if value is not None:
        return value
    if shape.quantity:
        return "0"
    return {} if shape.form == "struct" else "" if shape.name == "str" else None


@lru_cache(maxsize=4096)
def _canonical(amount: str | int | float) -> str:
    return Quantity.parse(str(amount)).text


def _canonical_quantities(value: Any, shape: FieldSchema) -> Any:
    """Write every quantity in `value` as Kubernetes prints it, in place; raises ValueError for a malformed quantity."""
    if shape.form == "scalar":
        return _canonical(value)
    if shape.form == "struct":
        for name in shape.measured:
            if name in value:
                value[name] = _canonical_quantities(value[name], shape.fields[name])
    elif shape.element is not None:
        if shape.form == "map":
            for name, item in value.items():
                value[name] = _canonical_quantities(item, shape.element)
        else:
            value[:] = [_canonical_quantities(item, shape.element) for item in value]
    return value


_schemas: dict[str, Schema] = {}


def schema(model: str) -> Schema:
    """The schema of a model, built once."""
    found = _schemas.get(model)
    if found is None:
        found = _schemas[model] = Schema(model)
    return found
