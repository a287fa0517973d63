"""Makes protobuf messages of class declarations: no compiler, no generated files, fields typed for the type checker.

::

    @message
    class RecordId(Message):
        shard_id: UInt64 = field(1)
        batch_id: UInt64 = field(2)

A message goes to the default pool as a file of its own, in the package ``silverfold.hstreamdb``.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message

Int32: TypeAlias = Annotated[int, FieldDescriptorProto.TYPE_INT32]
Int64: TypeAlias = Annotated[int, FieldDescriptorProto.TYPE_INT64]
UInt32: TypeAlias = Annotated[int, FieldDescriptorProto.TYPE_UINT32]
UInt64: TypeAlias = Annotated[int, FieldDescriptorProto.TYPE_UINT64]

_PACKAGE: Final = "silverfold.hstreamdb"
_SCALARS: Final = {
    bool: FieldDescriptorProto.TYPE_BOOL,
    bytes: FieldDescriptorProto.TYPE_BYTES,
    str: FieldDescriptorProto.TYPE_STRING,
}
_M = TypeVar("_M", bound=Message)


class _Field(NamedTuple):
    number: int
    oneof: str | None


def field(number: int, *, oneof: str | None = None) -> Any:
    """Declare a field by its number. Members of one ``oneof`` exclude each other; one at its default is sent."""
    return _Field(number, oneof)


@dataclass_transform(kw_only_default=True)
def message(declared: type[_M]) -> type[_M]:
    """Return the protobuf class of a declaration. All its fields are optional keyword arguments."""
    file = FileDescriptorProto(name=f"{_PACKAGE}/{declared.__name__}.proto", package=_PACKAGE, syntax="proto3")
    built = file.message_type.add(name=declared.__name__)
    for name, annotation in vars(declared).get("__annotations__", {}).items():
        _add_field(file, built, name, annotation, vars(declared)[name])
    descriptor = _added(file).message_types_by_name[declared.__name__]
    return cast("type[_M]", message_factory.GetMessageClass(descriptor))


def _add_field(file: FileDescriptorProto, built: DescriptorProto, name: str, annotation: Any, declared: _Field) -> None:
    added = built.field.add(name=name, number=declared.number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if get_origin(annotation) in (Sequence, Mapping):
        added.label = FieldDescriptorProto.LABEL_REPEATED
    if get_origin(annotation) is Sequence:
        (annotation,) = get_args(annotation)
    if get_origin(annotation) is Mapping:
        entry = f"{name.title().replace('_', '')}Entry"
        added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{built.name}.{entry}"
        pair = built.nested_type.add(name=entry)
        pair.options.map_entry = True
        for number, (part, of) in enumerate(zip(("key", "value"), get_args(annotation), strict=True), start=1):
            _add_field(file, pair, part, of, _Field(number, None))
    else:
        _set_type(file, added, annotation)
    if declared.oneof is not None:
        if declared.oneof not in [each.name for each in built.oneof_decl]:
            built.oneof_decl.add(name=declared.oneof)
        added.oneof_index = [each.name for each in built.oneof_decl].index(declared.oneof)


def _set_type(file: FileDescriptorProto, added: FieldDescriptorProto, annotation: Any) -> None:
    kind = get_args(annotation)[1] if get_origin(annotation) is Annotated else annotation
    if not isinstance(kind, type):  # of the aliases above
        added.type = kind
        return
    if kind in _SCALARS:
        added.type = _SCALARS[kind]
        return
    if issubclass(kind, IntEnum):
        added.type, descriptor = FieldDescriptorProto.TYPE_ENUM, _enum(kind)
    else:
        assert issubclass(kind, Message)
        added.type, descriptor = FieldDescriptorProto.TYPE_MESSAGE, kind.DESCRIPTOR
    added.type_name = f".{descriptor.full_name}"
    if descriptor.file.name not in file.dependency:
        file.dependency.append(descriptor.file.name)


def _enum(values: type[IntEnum]) -> Any:
    """Return an enum's descriptor, in a file of its own."""
    file = FileDescriptorProto(name=f"{_PACKAGE}/{values.__name__}.proto", package=_PACKAGE, syntax="proto3")
    built = file.enum_type.add(name=values.__name__)
    for each in values:
        built.value.add(name=each.name, number=each.value)
    return _added(file).enum_types_by_name[values.__name__]


def _added(file: FileDescriptorProto) -> Any:
    """Return the file's descriptor. The same file may be added again."""
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(file.name)
