"""Write the databases of a version down, once, as the code of its time made them.

    python -m tests.upgrade.make NUMBER COMMIT

NUMBER is that of the version's last migration, COMMIT the last one whose code has just these migrations. The code is
taken from Git, runs with the packages of today, and is killed in the middle of its work; what it leaves is dumped as
SQL into `databases/`. Such a file is never made again: it is what users of that version have.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from holdfast.runtime.postgres_server import PostgresServer, find_binaries

ROOT = Path(__file__).resolve().parents[2]
DATABASES = Path(__file__).parent / "databases"
TAKINGS = "CREATE TABLE takings (till TEXT NOT NULL, cents INTEGER NOT NULL)"


def code_of(commit: str, folder: Path) -> Path:
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    # The program that writes is today's, the code that it runs on is not.
    shutil.copytree(ROOT / "tests" / "upgrade", folder / "tests" / "upgrade")
    (folder / "tests" / "__init__.py").touch()
    return folder


def write(url: str, code: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{code / 'src'}{os.pathsep}{code}", "UPGRADE_WRITES": "1"}
    done = subprocess.run([sys.executable, "-m", "tests.upgrade.write", url], cwd=code, env=environment, timeout=180)
    if done.returncode != -signal.SIGKILL:
        raise SystemExit(f"the program ended with {done.returncode} before it was where it should be")


def dump_sqlite(number: str, code: Path) -> None:
    path = code / "written.db"
    with sqlite3.connect(path) as own:
        own.execute(TAKINGS)
    write(f"sqlite:///{path}", code)
    with sqlite3.connect(path) as connection:
        dump = "\n".join(connection.iterdump())
    (DATABASES / f"{number}.sqlite.sql").write_text(dump + "\n", encoding="utf-8")


def dump_postgres(number: str, code: Path) -> None:
    with PostgresServer() as server:
        url = server.create_database("written")
        subprocess.run([find_binaries() / "psql", url, "-q", "-c", TAKINGS], check=True)
        write(url, code)
        command = [find_binaries() / "pg_dump", url, "--inserts", "--no-owner", "--no-privileges", "--no-comments"]
        dump = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    statements = re.sub(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\.*)\n", "", dump, flags=re.MULTILINE)
    (DATABASES / f"{number}.postgres.sql").write_text(re.sub(r"\n{2,}", "\n", statements).lstrip(), encoding="utf-8")


def main() -> None:
    number, commit = sys.argv[1:]
    DATABASES.mkdir(exist_ok=True)
    for dump in (dump_sqlite, dump_postgres):
        with tempfile.TemporaryDirectory() as folder:
            dump(number, code_of(commit, Path(folder)))


if __name__ == "__main__":
    main()
