"""What the crash programme has found, tried each time."""

from __future__ import annotations

import pytest

from tests.reliability.crash.disk import Disk
from tests.reliability.crash.grounds import Grounds
from tests.reliability.crash.power import PowerStage
from tests.reliability.crash.table import SCENARIOS

JOURNAL = "app.db-journal"


def test_g1_a_new_file_is_not_emptied_by_the_journal_of_its_own_creation(grounds: Grounds) -> None:
    """G1: until a file is in WAL mode it has a rollback journal, whose deletion a power cut may undo. Found again
    later, it would undo the creation of the file, with every commit since: power/migration/sqlite/192/dropped."""
    stage = PowerStage(SCENARIOS["migration"], grounds.sqlite, grounds.folder)
    stage.watch()
    disk: Disk = stage._disk
    (deleted,) = [place for place, deed in enumerate(disk.deeds) if deed.kind == "delete" and deed.file == JOURNAL]
    for length in (*range(deleted + 1, deleted + 4), stage.length - 9, stage.length):
        stage.cut_at(length, "dropped")


@pytest.mark.parametrize("scenario", ["linear", "migration"])
def test_g1_the_disk_of_the_power_cuts_sees_journals_checkpoints_and_syncs(grounds: Grounds, scenario: str) -> None:
    """The programme would prove little on a disk where nothing is at stake."""
    stage = PowerStage(SCENARIOS[scenario], grounds.sqlite, grounds.folder)
    stage.watch()
    seen = {(deed.kind, deed.file) for deed in stage._disk.deeds}
    assert {("write", "app.db-wal"), ("sync", "app.db-wal"), ("write", "app.db"), ("sync", "app.db")} <= seen
    assert (("delete", JOURNAL) in seen) is (scenario == "migration")
