"""From what a person types to a decider or one of its instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.failures import NOT_FOUND, USAGE, Failure
from holdfast.cli.finding import find_run

if TYPE_CHECKING:
    from holdfast.authoring.deciders import Decider
    from holdfast.core.rows import Run
    from holdfast.engine import Engine

LOOKED_AT: Final = 1000


def decider_class(target: str) -> type[Decider[Any, Any, Any, Any]]:
    """The decider that MODULE:CLASS, or a name among what --app has imported, stands for."""
    from holdfast.authoring.registry import default_registry
    from holdfast.core.graph import known_names

    found: Any
    module_name, colon, path = target.partition(":")
    if colon:
        from holdfast.cli.loading import load_modules

        (module,) = load_modules([module_name])
        found = getattr(module, path, None)
        offered = sorted(name for name, thing in vars(module).items() if is_decider(thing))
    else:
        found = default_registry.workflows.get(target)
        offered = sorted(name for name, thing in default_registry.workflows.items() if is_decider(thing))
    if is_decider(found):
        decider: type[Decider[Any, Any, Any, Any]] = found
        return decider
    if not offered:
        where = f"module {module_name} defines no decider" if colon else f"no decider {target!r} is known here"
        raise Failure(
            where,
            hint="say --app with the module that defines it, or write MODULE:CLASS instead of its name",
            code=USAGE,
        )
    what = "is no decider" if found is not None else "is not known"
    raise Failure(f"{target!r} {what}", hint=known_names(path or target, offered), code=NOT_FOUND)


def is_decider(thing: object) -> bool:
    return isinstance(thing, type) and getattr(thing, "__decider__", None) is not None


def names_of(target: str) -> tuple[str, ...]:
    """The names under which instances of a decider are stored: earlier ones too, where its code is here."""
    from holdfast.authoring.registry import default_registry

    if ":" in target:
        return decider_class(target).__holdfast__.names
    found: Any = default_registry.workflows.get(target)
    return found.__holdfast__.names if is_decider(found) else (target,)


async def find_instance(engine: Engine, target: str, key: str | None) -> Run:
    """The run of an instance: DECIDER and its id, or RUN alone."""
    from holdfast.core.decider_operations import DECIDER
    from holdfast.core.ids import instance_id

    if key is None:
        if "/" not in target and await _has_instances(engine, target):
            raise Failure(
                f"{target} is a decider, and it is not said which instance of it is meant",
                hint=f"give its id too: {target} ID; `holdfast runs --workflow {target}` lists those that exist",
                code=USAGE,
            )
        row = await find_run(engine, target)
        if row.model != DECIDER:
            raise Failure(
                f"run {row.id} of {row.workflow} is no instance of a decider",
                hint=f"`holdfast show {row.id}` shows what it is",
                code=USAGE,
            )
        return row
    names = names_of(target)
    for row in await engine.store.runs([instance_id(name, key) for name in names]):
        return row
    raise await _no_instance(engine, names[0], key)


async def _has_instances(engine: Engine, name: str) -> bool:
    from holdfast.core.decider_operations import DECIDER
    from holdfast.store.contract import FindRuns

    return bool(await engine.store.find(FindRuns(workflow=name, model=DECIDER, limit=1)))


async def _no_instance(engine: Engine, name: str, key: str) -> Failure:
    from holdfast.core.decider_operations import DECIDER
    from holdfast.core.graph import known_names
    from holdfast.store.contract import FindRuns

    if await _has_instances(engine, name):
        return Failure(
            f"{name} has no instance {key!r}",
            hint=f"an instance begins with its first input; `holdfast runs --workflow {name}` lists those that exist",
            code=NOT_FOUND,
        )
    others = sorted({row.workflow for row in await engine.store.find(FindRuns(model=DECIDER, limit=LOOKED_AT))})
    known = known_names(name, others) if others else "it has none of any decider: `holdfast execute` begins one"
    return Failure(f"this database has no instances of {name!r}", hint=known, code=NOT_FOUND)
