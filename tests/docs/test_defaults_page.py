"""docs/defaults.md is what the code says."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import holdfast as hf
from tests.docs.documents import ROOT, environment


def test_i4_the_page_of_defaults_is_generated_from_the_code_and_current() -> None:
    """I4: the code is the only source of a default, and the page shows it."""
    command = [sys.executable, str(ROOT / "tools" / "generate_defaults.py"), "--check"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_i4_every_setting_has_a_sentence_and_a_variable_on_the_page() -> None:
    """I4: a setting that nobody explains is a setting that nobody can use."""
    _, page, *_ = (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8").split("\n## ")
    for field in dataclasses.fields(hf.Settings):
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{field.name}` ")]
        _, _, variable, default, sentence, _ = (cell.strip() for cell in row.split("|"))
        assert variable == ("" if field.name == "registry" else f"`HOLDFAST_{field.name.upper()}`")
        assert default
        assert sentence.endswith(".")


def test_i4_the_defaults_that_are_promised_are_the_defaults() -> None:
    """I4: lease 30 s, lost_limit 10, store timeout 30 s, unknown work waits an hour."""
    settings = hf.Settings()
    assert (settings.lease_seconds, settings.lost_limit) == (30.0, 10)
    assert (settings.store_timeout_seconds, settings.unknown_after_seconds) == (30.0, 3600.0)
    assert hf.Retry().attempts == 1


def test_the_public_names_are_the_same_for_python_and_for_type_checkers() -> None:
    """A checker reads the literal list; a name that is only in the table would be unknown to it."""
    import holdfast

    assert sorted(holdfast.__all__) == sorted([*holdfast._HOME_OF, "__version__"])
    assert all(getattr(holdfast, name) is not None for name in holdfast.__all__)
