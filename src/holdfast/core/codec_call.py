"""CallCodec: a function's arguments and result as payloads.

A call is one document, `[[positional...], {"keyword": ...}]`, in the form that binding to the signature gives it: an
argument that can be positional is, so `f(1)` and `f(x=1)` are the same bytes. Defaults are not stored; they are the
function's business when it runs. A call without arguments is no bytes at all.

The types of that document depend on how many positional and which keyword arguments there are. Each such form is
turned into one shape, kept, and decoded in one go.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from inspect import Parameter
from typing import Any, Final

import msgspec

from holdfast.core.codec_faithful import MAX_INT, plain_fault, short
from holdfast.core.codec_formats import JSON, json_decoder
from holdfast.core.codec_payload import DEFAULT_CODECS, DEFAULT_LIMIT_BYTES, Codecs, digest
from holdfast.core.codec_shape import UNTYPED, Shape, shape_of
from holdfast.core.errors import PayloadRefused, UsageError

Args = tuple[object, ...]
Kwargs = dict[str, object]
_Form = tuple[int, tuple[str, ...]]

_PEEK: Final = types.GenericAlias(tuple, (list[msgspec.Raw], dict[str, msgspec.Raw]))
_OPEN_PEEK: Final = types.GenericAlias(tuple, (list[Any], dict[str, Any]))
_FORMS_LIMIT: Final = 256
_AROUND: Final = -2  # the two containers of the document do not count as levels of the user's value
_VARIADIC: Final = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_AWAITED: Final = (Awaitable, Coroutine)
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class CallCodec:
    """Encodes and decodes calls and results of one function; built once, when the function is defined.

    `name` is how errors call it ("action charge"). `namespace` helps to resolve annotations that are strings and
    name something local. A first parameter called self is not part of the call. A function whose result is never
    stored may return anything.
    """

    __slots__ = (
        "_by_name", "_codecs", "_exact", "_fewest", "_forms", "_limit", "_name", "_null", "_only_form",
        "_partly_untyped", "_positional", "_result", "_result_of_json",
        "_result_where", "_shown", "_signature", "_untyped", "_var_keyword", "_var_positional", "_where",
    )  # fmt: skip

    def __init__(
        self,
        function: Callable[..., object],
        codecs: Codecs = DEFAULT_CODECS,
        *,
        name: str | None = None,
        limit: int = DEFAULT_LIMIT_BYTES,
        namespace: Mapping[str, object] | None = None,
        stores_result: bool = True,
    ) -> None:
        self._codecs: Final = codecs
        self._limit: Final = limit
        self._name: Final = name or f"function {getattr(function, '__name__', type(function).__name__)}"
        self._where: Final = f"the arguments of {self._name}"
        self._result_where: Final = f"the result of {self._name}"
        hints = _hints(function, self._name, namespace)
        self._signature: Final = _signature(function, self._name)
        self._shown: Final = f"{self._name}{self._signature}"
        self._positional: Final[list[Shape]] = []
        self._by_name: Final[dict[str, Shape]] = {}
        self._var_positional: Shape | None = None
        self._var_keyword: Shape | None = None
        for parameter in self._signature.parameters.values():
            shape = shape_of(hints.get(parameter.name, UNTYPED), f"argument {parameter.name!r} of {self._name}")
            if parameter.kind is Parameter.VAR_POSITIONAL:
                self._var_positional = shape
            elif parameter.kind is Parameter.VAR_KEYWORD:
                self._var_keyword = shape
            else:
                self._by_name[parameter.name] = shape
                if parameter.kind in _POSITIONAL:
                    self._positional.append(shape)
        self._result: Final = shape_of(hints.get("return", UNTYPED) if stores_result else UNTYPED, self._result_where)
        self._null: Final = codecs.encode(None, where=self._result_where).data
        shapes = [s for s in (*self._by_name.values(), self._var_positional, self._var_keyword) if s is not None]
        self._untyped: Final = all(shape.untyped for shape in shapes)
        self._partly_untyped: Final = any(shape.untyped for shape in shapes) and not self._untyped
        parameters = self._signature.parameters.values()
        required = [p for p in parameters if p.default is Parameter.empty and p.kind not in _VARIADIC]
        needs_keywords = any(p.kind is Parameter.KEYWORD_ONLY for p in required)
        # The fewest positional arguments that need no binding; more than there are if keywords are needed.
        self._fewest: Final = len(self._positional) + 1 if needs_keywords else len(required)
        fixed = len(required) == len(parameters) == len(self._positional)
        self._only_form: Final[_Form | None] = (len(self._positional), ()) if fixed else None
        self._forms: Final[dict[_Form, Shape]] = {}
        kinds = tuple(shape.exact for shape in self._positional)
        self._exact: Final = kinds if fixed and kinds and None not in kinds else None
        scalar = self._result.exact is not None
        self._result_of_json: Final = json_decoder(self._result.wire) if scalar else None

    @property
    def tag(self) -> str:
        """The tag of the codec that `encode_call` and `encode_result` write with."""
        return self._codecs.default.tag

    @property
    def signature(self) -> inspect.Signature:
        """The signature of a call, without self."""
        return self._signature

    def encode_call(
        self,
        args: Args,
        kwargs: Mapping[str, object] | None = None,
        *,
        limit: int | None = None,
        codecs: Codecs | None = None,
    ) -> bytes:
        """The call as bytes; UsageError if it does not fit the signature, PayloadRefused if a value can't be stored.

        Here and below, `codecs` are those of the engine that asks, in place of the ones it was built with.
        """
        limit = self._limit if limit is None else limit
        codecs = codecs or self._codecs
        bound_args, bound_kwargs = self._bind(args, kwargs or {})
        if not bound_args and not bound_kwargs:
            return b""
        try:
            if self._untyped:
                document = [list(bound_args), bound_kwargs]
                return codecs.write(document, _ANYTHING, self._where, limit, _AROUND)
            if self._are_exact(bound_args):
                return codecs.write((bound_args, bound_kwargs), _EXACT, self._where, limit)
            if self._partly_untyped:
                self._check_untyped(bound_args, bound_kwargs)
            shape = self._form((len(bound_args), tuple(bound_kwargs)))
            return codecs.write((bound_args, bound_kwargs), shape, self._where, limit, _AROUND)
        except PayloadRefused as refused:
            self._refuse_by_argument(bound_args, bound_kwargs, refused)
            raise

    def encode_scalars(self, args: Args, kwargs: Mapping[str, object]) -> bytes | None:
        """The call as JSON if all arguments are scalars of just the annotated types, and so equal once decoded."""
        if kwargs or not self._are_exact(args):
            return None
        try:
            return JSON.encode((args, {}))
        except UnicodeEncodeError:  # `encode_call` says where
            return None

    def encode_keywords(self, kwargs: Kwargs, *, limit: int | None = None) -> bytes:
        """A call with every argument under its name, as JSON: for documents that people read and edit.

        The caller has checked that the function can be called like this. `decode_call` reads it with the tag "json".
        """
        if not kwargs:
            return b""
        try:
            if self._partly_untyped:
                self._check_untyped((), kwargs)
            shape = _ANYTHING if self._untyped else self._form((0, tuple(kwargs)))
            limit = self._limit if limit is None else limit
            return _JSON.write([[], kwargs] if self._untyped else ((), kwargs), shape, self._where, limit, _AROUND)
        except PayloadRefused as refused:
            self._refuse_by_argument((), kwargs, refused)
            raise

    def decode_call(
        self, data: bytes, codec: str | None = None, *, codecs: Codecs | None = None
    ) -> tuple[Args, Kwargs]:
        """The arguments as the function is to receive them."""
        codecs = codecs or self._codecs
        if not data:
            return (), {}
        # The only form of a call from `encode_call`; one from `encode_keywords` has others.
        form = None if data.startswith(b"[[],") else self._only_form
        if self._untyped:
            shape = _ANYTHING
        else:
            if form is None:
                peeked = typing.cast("tuple[list[object], dict[str, object]]", self._peek(data, codec, codecs))
                form = (len(peeked[0]), tuple(peeked[1]))
            shape = self._form(form)
        read = codecs.read(data, shape, self._where, codec)
        if self._untyped and not _is_call(read):
            raise PayloadRefused(
                f"{self._where} are stored as something that is no call: {short(read)}",
                hint="the row was changed by hand or damaged: start the run again, or restore the row",
            )
        args, kwargs = typing.cast("tuple[Args, Kwargs]", read)
        return tuple(args), kwargs

    def encode_input(self, args: Args, kwargs: Mapping[str, object], limit: int, codecs: Codecs) -> tuple[bytes, str]:
        """The call as bytes, and its `input_digest`."""
        data = self.encode_scalars(args, kwargs) if codecs.default is JSON else None
        if data is not None and len(data) <= limit:
            return data, digest(data)  # of scalars there is one form only
        data = self.encode_call(args, kwargs, limit=limit, codecs=codecs)
        return data, self.input_digest(data, codecs=codecs)

    def input_digest(self, data: bytes, codec: str | None = None, *, codecs: Codecs | None = None) -> str:
        """A digest that is equal for equal calls, whatever codec wrote them and in whatever order their dicts were."""
        args, kwargs = self.decode_call(data, codec, codecs=codecs)
        plain = (
            [self._positional_shape(index).to_plain(value) for index, value in enumerate(args)],
            {key: self._keyword_shape(key).to_plain(value) for key, value in kwargs.items()},
        )
        return digest(self._codecs.canonical(plain, where=self._where))

    def encode_result(self, value: object, *, limit: int | None = None, codecs: Codecs | None = None) -> bytes:
        """The function's result as bytes."""
        codecs = codecs or self._codecs
        if value is None and codecs is self._codecs and (self._result.untyped or self._result.exact is type(None)):
            return self._null
        return codecs.write(value, self._result, self._result_where, self._limit if limit is None else limit)

    def decode_result(self, data: bytes, codec: str | None = None, *, codecs: Codecs | None = None) -> object:
        """The result as the caller is to receive it."""
        if codec == JSON.tag and self._result_of_json is not None:  # whatever the codecs, they read that alike
            try:
                return self._result_of_json(data)
            except Exception:  # noqa: S110 - told below
                pass
        return (codecs or self._codecs).read(data, self._result, self._result_where, codec)

    def fits(self, args: Args, kwargs: Mapping[str, object]) -> bool:
        """True if the call surely fits the signature; False says nothing, and binding must decide.

        Binding costs several microseconds and most calls are plainly positional with all arguments given.
        """
        return not kwargs and self._fewest <= len(args) <= len(self._positional)

    def _bind(self, args: Args, kwargs: Mapping[str, object]) -> tuple[Args, Kwargs]:
        if self.fits(args, kwargs):
            return args, {}
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as wrong:
            raise UsageError(
                f"the call does not fit {self._shown}: {wrong}", hint="pass the arguments that the signature declares"
            ) from wrong
        return bound.args, bound.kwargs

    def _are_exact(self, args: Args) -> bool:
        """Whether all arguments are scalars of just the annotated types: such need no decoding to be checked."""
        return tuple(map(type, args)) == self._exact and not any(map(plain_fault, args))

    def _check_untyped(self, args: Args, kwargs: Kwargs) -> None:
        """Hold arguments without annotation to JSON's own types also beside annotated ones."""
        for index, value in enumerate(args):
            if self._positional_shape(index).untyped and plain_fault(value) is not None:
                raise PayloadRefused(f"{self._where} hold more than JSON's own types")
        for name, value in kwargs.items():
            if self._keyword_shape(name).untyped and plain_fault(value) is not None:
                raise PayloadRefused(f"{self._where} hold more than JSON's own types")

    def _peek(self, data: bytes, codec: str | None, codecs: Codecs) -> object:
        # msgspec's formats leave the arguments alone here; a codec of the user's own may know no Raw.
        shape = _PEEK_SHAPE if (codec or codecs.default.tag) in DEFAULT_CODECS else _OPEN_PEEK_SHAPE
        return codecs.read(data, shape, self._where, codec)

    def _positional_shape(self, index: int) -> Shape:
        if index < len(self._positional):
            return self._positional[index]
        return self._var_positional or _ANYTHING

    def _keyword_shape(self, name: str) -> Shape:
        return self._by_name.get(name) or self._var_keyword or _ANYTHING

    def _form(self, form: _Form) -> Shape:
        known = self._forms.get(form)
        if known is None:
            count, names = form
            known = _call_shape(
                [self._positional_shape(index) for index in range(count)],
                {name: self._keyword_shape(name) for name in names},
            )
            if len(self._forms) >= _FORMS_LIMIT:  # variadic functions have no end of forms
                self._forms.clear()
            self._forms[form] = known
        return known

    def _refuse_by_argument(self, args: Args, kwargs: Kwargs, refused: PayloadRefused) -> None:
        """Refuse the one argument at fault under its own name: `$[0][1]` would mean nothing to a caller."""
        parameters = [p.name for p in self._signature.parameters.values() if p.kind in _POSITIONAL]
        for index, value in enumerate(args):
            name = parameters[index] if index < len(parameters) else f"*{index}"
            self._write_alone(value, self._positional_shape(index), name, refused)
        for name, value in kwargs.items():
            self._write_alone(value, self._keyword_shape(name), name, refused)

    def _write_alone(self, value: object, shape: Shape, name: str, refused: PayloadRefused) -> None:
        try:
            self._codecs.write(value, shape, f"argument {name!r} of {self._name}", MAX_INT)
        except PayloadRefused as exact:
            raise exact from refused.__cause__


def returned_type(function: Callable[..., object]) -> object:
    """What a function says that calling it, or awaiting that, gives; UNTYPED if that is nothing that can be stored."""
    target = inspect.unwrap(function)
    if isinstance(target, types.FunctionType) and not target.__annotations__:  # a lambda has none
        return UNTYPED
    try:
        annotation = _hints(target, "a call", None).get("return", UNTYPED)
        if typing.get_origin(annotation) in _AWAITED:
            annotation = typing.get_args(annotation)[-1]
        return shape_of(annotation, "a call").annotation
    except (UsageError, PayloadRefused):  # a name of type checkers only, a protocol, a class of another library
        return UNTYPED


def _is_call(read: object) -> bool:
    """Whether this is a list of arguments and a dict of keyword arguments: untyped, nobody else checks it."""
    return isinstance(read, list) and [type(part) for part in read] == [list, dict]


def _call_shape(positional: list[Shape], keywords: dict[str, Shape]) -> Shape:
    helped = [(index, shape) for index, shape in enumerate(positional) if not shape.direct]
    helped_keywords = [(name, shape) for name, shape in keywords.items() if not shape.direct]
    wire = types.GenericAlias(
        tuple,
        (
            types.GenericAlias(tuple, tuple(shape.wire for shape in positional)),
            _keywords_type({name: shape.wire for name, shape in keywords.items()}),
        ),
    )
    if not helped and not helped_keywords:
        return Shape(annotation=wire, wire=wire)

    def both(call: object, change: Callable[[Shape, object], object]) -> object:
        args, kwargs = typing.cast("tuple[Args, Kwargs]", call)
        new_args, new_kwargs = list(args), dict(kwargs)
        for index, shape in helped:
            new_args[index] = change(shape, args[index])
        for name, shape in helped_keywords:
            new_kwargs[name] = change(shape, kwargs[name])
        return tuple(new_args), new_kwargs

    return Shape(
        annotation=wire,
        wire=wire,
        to_plain=lambda call: both(call, lambda shape, value: shape.to_plain(value)),
        from_plain=lambda call: both(call, lambda shape, plain: shape.from_plain(plain)),
    )


def _keywords_type(fields: dict[str, object]) -> object:
    if not fields:
        return dict[str, Any]
    # A name of **kwargs need not be an identifier; TypedDict is the one record type that takes any name.
    return typing.TypedDict("Keywords", fields)  # type: ignore[operator]


_ANYTHING: Final = shape_of(UNTYPED, "")
_EXACT: Final = Shape(annotation=tuple, wire=tuple, checked=True)  # of arguments that were looked at one by one
_JSON: Final = Codecs(JSON)
_PEEK_SHAPE: Final = Shape(annotation=_PEEK, wire=_PEEK)
_OPEN_PEEK_SHAPE: Final = Shape(annotation=_OPEN_PEEK, wire=_OPEN_PEEK)


def _signature(function: Callable[..., object], name: str) -> inspect.Signature:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as trouble:
        raise UsageError(f"{name} has no signature that Python shows: {trouble}", hint="wrap it in a def") from trouble
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name == "self" and parameters[0].kind in _POSITIONAL:
        parameters = parameters[1:]
    return signature.replace(parameters=parameters)


def _hints(function: Callable[..., object], name: str, namespace: Mapping[str, object] | None) -> dict[str, object]:
    target: object = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = getattr(type(target), "__call__", target)  # noqa: B004 - the method itself is wanted, not whether it is there
    try:
        found = typing.get_type_hints(target, localns=dict(namespace) if namespace else None, include_extras=True)
    except Exception as trouble:
        raise UsageError(
            f"the annotations of {name} can't be resolved: {type(trouble).__name__}: {trouble}",
            hint="define or import the types it names at module level, outside of TYPE_CHECKING",
        ) from trouble
    return dict(found)
