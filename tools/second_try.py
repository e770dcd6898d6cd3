"""Run the tests that only missed a deadline once more, alone: what `make test` does when it failed.

    python tools/second_try.py

Fails at once when the last run of the tests had any other failure (tests/support/second_try.py decides that).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Return the exit code of the second try."""
    missed = ROOT / ".cache" / "missed_deadlines.json"
    tests = json.loads(missed.read_text()) if missed.exists() else []
    missed.unlink(missing_ok=True)
    if not tests:
        return 1
    shown = "\n  ".join(tests)
    print(f"These tests missed a deadline, and nothing else was wrong. Once more, alone:\n  {shown}", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, check=False).returncode
    missed.unlink(missing_ok=True)
    if code == 0:
        print(f"Passed at the second try only; a test that is often named here has something to tell:\n  {shown}")
    return code


if __name__ == "__main__":
    sys.exit(main())
