"""What is stored is data: it never becomes code, a module, a command or a name in SQL."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.architecture.sources import Source, imports_of, package_sources, part_of

# Formats that run code when they are read.
CODE_IN_DATA = {
    "pickle",
    "_pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "yaml",
    "jsonpickle",
}
EVALUATES = {"eval", "exec", "compile", "__import__"}
SHELLS = {("os", "system"), ("os", "popen"), ("subprocess", "getoutput"), ("subprocess", "getstatusoutput")}

# Where a module may be imported by a name in a variable, and whose name that is. None of them is read from a database.
IMPORTS_BY_NAME = {
    "holdfast": "a public name of the package, from a table in the code",
    "holdfast.cli.program": "a command, from a table in the code",
    "holdfast.cli.loading": "a module that the user names on the command line",
    "holdfast.runtime.codecs": "the codec that a setting or the command line names",
    "holdfast.runtime.process_child": "the module of an action or a class that the parent process has imported itself",
    "holdfast.emitters": "an optional package, named in the code",
}
# Statements that are put together: of named parts, column lists and numbers of the code's own.
ASSEMBLES_SQL = {
    "holdfast.store.statements": "column lists of the tables, from the code",
    "holdfast.store.postgres_flush": "the named parts of the one guarded statement",
    "holdfast.store.sqlite": "conditions of a search, each of them a constant; what is searched for are parameters",
    "holdfast.store.postgres_transaction": "a number of milliseconds from the code",
}
SENDS_SQL = {"execute", "executemany", "executescript", "fetch", "fetchrow", "fetchval", "cursor", "prepare"}


def found(look: Callable[[Source], Iterator[tuple[int, str]]]) -> list[str]:
    return [f"{source.shown}:{line}: {what}" for source in package_sources() for line, what in look(source)]


def code_in_data(source: Source) -> Iterator[tuple[int, str]]:
    for imported in imports_of(source):
        if imported.module.partition(".")[0] in CODE_IN_DATA:
            yield imported.line, f"imports {imported.module}, which runs code when it reads data"


def evaluations(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in EVALUATES:
                yield node.lineno, f"calls {name}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="builtins"), attr=name)) if name in EVALUATES:
                yield node.lineno, f"calls builtins.{name}()"


def imports_by_name(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and _name_of(node.func) in ("import_module", "run_module", "run_path"):
            constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
            if source.module not in IMPORTS_BY_NAME and not constant:
                yield node.lineno, "imports a module whose name is in a variable"


def shells(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        if any(word.arg == "shell" and not _is_false(word.value) for word in node.keywords):
            yield node.lineno, "gives shell=, so that data may become a command"
        match node.func:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in SHELLS:
                yield node.lineno, f"calls {owner}.{name}()"
            case ast.Attribute(attr="create_subprocess_shell"):
                yield node.lineno, "starts a shell"


def made_statements(source: Source) -> Iterator[tuple[int, str]]:
    """SQL that is put together in the call that sends it, or in a variable that a listed module does not own."""
    if source.module in ASSEMBLES_SQL:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SENDS_SQL:
            for argument in node.args[:1]:
                if _is_put_together(argument):
                    yield node.lineno, f"gives a text that is put together to {node.func.attr}()"


CHECKS = (code_in_data, evaluations, imports_by_name, shells, made_statements)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_stored_never_becomes_code_or_a_name(check: Any) -> None:
    """A row that somebody else wrote can break its own run, and nothing else."""
    wrong = found(check)
    assert not wrong, "\n".join(wrong)


def test_every_exception_to_these_rules_is_still_needed() -> None:
    """A list of exceptions that outlives its reasons would hide the next one."""
    importing = {
        s.module for s in package_sources() for n in ast.walk(s.tree) if isinstance(n, ast.Call) and _imports(n)
    }
    assert importing == set(IMPORTS_BY_NAME)
    assert {module for module in ASSEMBLES_SQL if part_of(module) != "store"} == set()


@pytest.mark.parametrize(
    ("check", "code"),
    [
        (code_in_data, "from pickle import loads"),
        (code_in_data, "def later():\n    import marshal"),
        (evaluations, "eval(row.payload)"),
        (evaluations, "exec(compile(text, 'x', 'exec'))"),
        (imports_by_name, "importlib.import_module(row.module)"),
        (shells, "subprocess.run(command, shell=True)"),
        (shells, "os.system(row.name)"),
        (made_statements, "db.execute(f'SELECT * FROM {table}')"),
        (made_statements, "await connection.fetch('SELECT * FROM ' + table)"),
        (made_statements, "db.execute('DELETE FROM %s' % table)"),
        (made_statements, "db.execute('DELETE FROM {}'.format(table))"),
    ],
)
def test_each_rule_notices_what_it_is_there_for(check: Any, code: str) -> None:
    """A rule that finds nothing anywhere is told from one that cannot find anything."""
    sample = Source(package_sources()[0].path, "holdfast.sample", ast.parse(code))
    assert list(check(sample))


def _imports(node: ast.Call) -> bool:
    return _name_of(node.func) in ("import_module", "run_module", "run_path")


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def _is_put_together(argument: ast.expr) -> bool:
    match argument:
        case ast.JoinedStr(values=values):
            return any(isinstance(value, ast.FormattedValue) for value in values)
        case ast.BinOp(op=ast.Add() | ast.Mod()):
            return True
        case ast.Call(func=ast.Attribute(attr="format" | "join")):
            return True
        case _:
            return False
