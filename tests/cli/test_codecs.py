"""Runs written with another codec, as the command line starts and shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Shell

OWN_CODEC = """
import holdfast as hf

class Reversed:
    tag = "reversed"

    def encode(self, plain, /):
        return hf.JSON.encode(plain)[::-1]

    def decode(self, data, annotation, /):
        return hf.JSON.decode(data[::-1], annotation)

codec = Reversed()
"""

STAMP = """
import holdfast as hf

@hf.action
async def stamp(text: str) -> bytes:
    return text.encode()
"""

ASKING = """
import typing
import holdfast as hf

class State(typing.TypedDict, total=False):
    word: str

asking = hf.StateGraph(State, name="asking")

@asking.node(label="begun")
async def begin(state):
    return {"word": "first"}

@asking.node
async def ask(state, ctx: hf.NodeContext):
    return {"word": await ctx.interrupt({"send this?": state["word"]})}

asking.start_at("begin")
asking.edge("begin", "ask")
asking.finish("ask")
"""


@pytest.fixture
def own_codec(folder: Path) -> str:
    (folder / "sealing.py").write_text(OWN_CODEC, encoding="utf-8")
    (folder / "stamps.py").write_text(STAMP, encoding="utf-8")
    (folder / "asks.py").write_text(ASKING, encoding="utf-8")
    return "sealing:codec"


@pytest.mark.parametrize("codec", ["json", "msgpack", "sealing:codec"])
def test_i14_show_reads_input_and_result_whatever_wrote_them(
    shell: Shell, own_codec: str, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: people see the same in every codec, bytes included."""
    monkeypatch.setenv("HOLDFAST_CODEC", codec)
    run = shell.start("stamps:stamp", "Hello")
    shell.work(run)
    shown = shell.json("show", run)
    assert shown["input"] == [["Hello"], {}]
    assert shown["result"] == "SGVsbG8="
    assert '"SGVsbG8="' in shell.ok("show", run)
    monkeypatch.setenv("HOLDFAST_CODEC", "json")
    elsewhere = shell.json("show", run)
    if codec == own_codec:  # a process without the codec says so and shows the rest
        assert elsewhere["input"] == "<14 bytes of reversed that this process cannot read>"
        assert elsewhere["result"] == "<10 bytes of reversed that this process cannot read>"
        assert elsewhere["status"] == "completed"
    else:
        assert (elsewhere["input"], elsewhere["result"]) == (shown["input"], shown["result"])


def test_i14_a_graph_is_shown_without_its_codec_but_for_its_values(
    shell: Shell, own_codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CODEC", own_codec)
    run = shell.start("asks:asking", "{}")
    shell.work(run, until="suspended")
    known = shell.json("show", run)["graph"]
    assert known["questions"][0]["payload"] == {"send this?": "first"}
    monkeypatch.setenv("HOLDFAST_CODEC", "json")
    shown = shell.json("show", run)["graph"]
    assert shown["questions"][0]["payload"] == "<22 bytes of reversed that this process cannot read>"
    assert [(step["step"], step["ran"], step["labels"]) for step in shown["steps"]] == [
        (step["step"], step["ran"], step["labels"]) for step in known["steps"]
    ]
    assert [item["item"] for item in shown["frontier"]] == [item["item"] for item in known["frontier"]] == ["ask@2"]
    assert shown["totals"] == known["totals"]
    assert "that this process cannot read" in shell.ok("show", run)
    assert "ask@2 asks a person" in shell.ok("explain", run)


@pytest.mark.parametrize("codec", ["msgpack", "sealing:codec"])
def test_i14_start_and_wait_prints_a_result_of_any_codec(
    shell: Shell, own_codec: str, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run by a worker before, so that only the printing is looked at."""
    monkeypatch.setenv("HOLDFAST_CODEC", codec)
    shell.work(shell.start("stamps:stamp", "Hello", "--key", "k"))
    assert shell.ok("start", "stamps:stamp", "Hello", "--key", "k", "--wait").strip() == "SGVsbG8="
    assert shell.json("start", "stamps:stamp", "Hello", "--key", "k", "--wait")["result"] == "SGVsbG8="


@pytest.mark.parametrize(("codec", "fact"), [("yaml", "HOLDFAST_CODEC is 'yaml'"), ("nowhere:codec", "nowhere")])
def test_i14_a_codec_that_is_not_there_is_a_clear_error(shell: Shell, codec: str, fact: str) -> None:
    shell.start("shop:greet", "Ada")
    done = shell("runs", env={"HOLDFAST_CODEC": codec})
    assert done.exit_code != 0
    assert fact in done.output
    assert "Traceback" not in done.output
