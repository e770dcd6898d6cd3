"""The modules that isolated processes import, on the path of every test here that asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.process_support import JOBS


@pytest.fixture(scope="session")
def jobs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "jobs_of_test_processes.py").write_text(JOBS)
    (folder / "broken_of_test_processes.py").write_text("raise ImportError('the database driver is not installed')")
    return folder


@pytest.fixture
def process_jobs(jobs_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(jobs_folder))
