"""The OpenAPI 3.1 document, made of the table of routes and the types that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from holdfast import __version__
from holdfast.web.access import Role
from holdfast.web.refusals import MEANINGS, ErrorAnswer
from holdfast.web.routes import Route

REF: Final = "#/components/schemas/{name}"
PATH_NAME: Final = re.compile(r"\{(\w+)\}")


def document(routes: Iterable[Route], *, root: str = "") -> dict[str, Any]:
    """The whole interface; `root` is where the application is mounted."""
    shown = [route for route in routes if route.serves not in ("page", "asset")]
    types = [kind for route in shown for kind in (route.answer, route.body) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, ErrorAnswer], ref_template=REF)
    schema = dict(zip([id(kind) for kind in [*types, ErrorAnswer]], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        paths.setdefault(route.shown_path, {})[route.method.lower()] = _operation(route, schema)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "Runs of durable workflows: look at them, start them, operate them.",
        },
        "servers": [{"url": root or "/"}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "holdfast_session"},
            },
        },
    }


def _operation(route: Route, schema: dict[int, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "x-role": route.role.word,
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": _responses(route, schema),
    }
    if route.role is Role.PUBLIC:
        operation["security"] = []
    if route.body is not None:
        required = any(field.required for field in msgspec.structs.fields(route.body))
        content = {"application/json": {"schema": schema[id(route.body)]}}
        operation["requestBody"] = {"required": required, "content": content}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in PATH_NAME.findall(route.shown_path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    _, components = msgspec.json.schema_components([route.query], ref_template=REF)
    properties = components[route.query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(schema)}
        for name, schema in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """An address has no null: what is not given is absent."""
    if "anyOf" not in schema:
        return schema
    (only,) = [each for each in schema["anyOf"] if each != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**only, **rest}


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    if not route.takes_key:
        return []
    schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
    told = "The same key again is the same request: it is not done twice."
    return [{"name": "Idempotency-Key", "in": "header", "required": False, "description": told, "schema": schema}]


def _responses(route: Route, schema: dict[int, Any]) -> dict[str, Any]:
    shown = schema[id(route.answer)] if route.media == "application/json" else {"type": "string"}
    done = {"description": "done", "content": {route.media: {"schema": shown}}}
    responses: dict[str, Any] = {str(route.status): done}
    if route.status == 201:
        responses["200"] = {**done, "description": "it was there before"}
    for status in _refusals(route):
        content = {"application/json": {"schema": schema[id(ErrorAnswer)]}}
        responses[str(status)] = {"description": MEANINGS[status], "content": content}
    return responses


def _refusals(route: Route) -> list[int]:
    found = {400, 403, 421, 422, 503}
    if route.role is not Role.PUBLIC or route.serves == "open_session":
        found |= {401}
    if route.handler is not None or route.serves == "live":
        found |= {404}
    if route.changes_something:
        found |= {409}
    if route.method == "POST":
        found |= {413, 415}
    if route.serves in ("live", "open_session"):
        found |= {429}
    return sorted(found)
