"""List the promises in docs/invariants.md that no test cites; exit with 1 if one that should have a test has none.

A promise is an entry that starts with its number in bold, `**I12**`, `**G3**` or `**K5**`. An entry that ends with
`(planned: issue 7)` waits for code that does not exist yet. A test cites one by its name: `test_i12_…`, `test_g3_…`.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROMISE = re.compile(r"^\*\*([IGK]\d+)\*\*", re.MULTILINE)
PLANNED = re.compile(r"\(planned: issue (\d+)\)\s*$")
CITATION = re.compile(r"^\s*(?:async\s+)?def test_([igk]\d+)_", re.MULTILINE)


def read_promises(text: str) -> dict[str, str | None]:
    """Return every promise's number with the issue that plans it, or None when it holds now."""
    promises: dict[str, str | None] = {}
    starts = list(PROMISE.finditer(text))
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        entry = text[start.start() : following.start() if following else len(text)]
        # The entry ends at the first empty line or heading; what comes after it introduces the next section.
        entry = re.split(r"\n\s*\n|\n#", entry)[0]
        number = start[1]
        if number in promises:
            sys.exit(f"ledger: {number} is promised twice in docs/invariants.md; give the second its own number")
        planned = PLANNED.search(entry)
        promises[number] = planned[1] if planned else None
    return promises


def read_citations(tests: Path) -> dict[str, list[str]]:
    """Return for every cited number the files that cite it."""
    citations: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(tests.rglob("test_*.py")):
        for number in CITATION.findall(path.read_text(encoding="utf-8")):
            citations[number.upper()].append(path.relative_to(tests).as_posix())
    return dict(citations)


def by_kind_and_number(promise: str) -> tuple[str, int]:
    return promise[0], int(promise[1:])


def main(root: Path = ROOT) -> int:
    document = root / "docs" / "invariants.md"
    if not document.exists():
        print("ledger: docs/invariants.md is missing; it is where the promises are numbered", file=sys.stderr)
        return 1
    promises = read_promises(document.read_text(encoding="utf-8"))
    citations = read_citations(root / "tests")
    if not promises:
        print("ledger: docs/invariants.md numbers no promise; start one with **I1** or **G1**", file=sys.stderr)
        return 1
    missing = []
    for number in sorted(promises, key=by_kind_and_number):
        issue = promises[number]
        if issue is not None:
            note = ", part of it tested already" if number in citations else ""
            print(f"{number:<5} planned in issue {issue}{note}")
        elif number not in citations:
            missing.append(number)
            print(f"{number:<5} NO TEST: name one test_{number.lower()}_…")
    for number in sorted(citations.keys() - promises.keys(), key=by_kind_and_number):
        print(f"{number:<5} is cited by {', '.join(sorted(set(citations[number])))} but promised nowhere")
    kept = sum(1 for number, issue in promises.items() if issue is None and number in citations)
    planned_count = sum(1 for issue in promises.values() if issue is not None)
    print(f"ledger: {kept} promises tested, {len(missing)} without a test, {planned_count} planned")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
