"""Pydantic models as states: each field is validated and written by pydantic, alone.

Nothing is imported: whoever has a model has loaded the library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from holdfast.authoring.state_fields import Wrapping
from holdfast.core.codec_shape import display

__all__ = ["default_of", "field_hint", "maker", "wrapped"]

# What changes how a single value is read or written; aliases and extra keys are about the model as a whole.
_KEPT_SETTINGS = (
    "arbitrary_types_allowed",
    "json_encoders",
    "ser_json_bytes",
    "ser_json_inf_nan",
    "ser_json_temporal",
    "ser_json_timedelta",
    "strict",
    "use_enum_values",
    "val_json_bytes",
)


def field_hint(info: Any) -> Any:
    """The type of a model's field with everything that its annotation and its Field(…) say."""
    metadata = list(info.metadata)
    if info.discriminator is not None:
        metadata.append(sys.modules["pydantic"].Field(discriminator=info.discriminator))
    return Annotated[(info.annotation, *metadata)] if metadata else info.annotation


def default_of(info: Any) -> Callable[[], object] | None:
    """What makes a field's default; None for a field that has to be given."""
    if info.is_required():
        return None
    return lambda: info.get_default(call_default_factory=True)


def wrapped(owner: Any, hint: Any) -> Wrapping:
    """A model with one field of this type, under the settings of the model that the field is of."""
    settings = {name: owner.model_config[name] for name in _KEPT_SETTINGS if name in owner.model_config}
    # Under the name of the type, which is what an error about a value shows.
    model: Any = sys.modules["pydantic"].create_model(_shown(hint), __config__=settings, value=(hint, ...))
    # Without validation: a wrong value is to be refused, as everywhere, and not to be made a right one.
    return Wrapping(model, lambda value: model.model_construct(value=value))


def _shown(hint: Any) -> str:
    return display(get_args(hint)[0] if get_origin(hint) is Annotated else hint)


def maker(model: Any) -> Callable[[Mapping[str, object]], object]:
    """What makes an instance of a model from the values of its fields, with all of its validators."""
    names = {
        name: info.validation_alias if isinstance(info.validation_alias, str) else info.alias or name
        for name, info in model.model_fields.items()
    }
    return lambda values: model.model_validate({names[name]: value for name, value in values.items()})
