"""The files of the page: read once into a manifest, and served from it. No path of a request ever names a file."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

import msgspec

INDEX: Final = "index.html"
ASSETS: Final = "assets"
SMALL: Final = 512  # not worth compressing
TEXT: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
MISSING: Final = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Holdfast</title>
<p>This installation has no page: it was built without one. The HTTP interface works, and so does the command line.</p>
</html>"""


class File(msgspec.Struct, frozen=True):
    """A file as it is sent: its bytes, the same compressed, its type, and a tag that changes with it."""

    data: bytes
    packed: bytes | None
    media: str
    tag: str


class Manifest:
    """Every file of the page by its name; nothing else can be asked for."""

    def __init__(self, folder: Traversable | None = None) -> None:
        root = resources.files("holdfast.web").joinpath("_ui") if folder is None else folder
        self.assets: dict[str, File] = {}
        index = root.joinpath(INDEX)
        self.has_page = index.is_file()
        self.index = _file(INDEX, index.read_bytes() if self.has_page else MISSING)
        assets = root.joinpath(ASSETS)
        for entry in assets.iterdir() if assets.is_dir() else ():
            if entry.is_file() and not getattr(entry, "is_symlink", bool)():  # a link may lead anywhere
                self.assets[entry.name] = _file(entry.name, entry.read_bytes())


def _file(name: str, data: bytes) -> File:
    ending = name[name.rfind(".") :]
    media = TEXT.get(ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    packed = gzip.compress(data, 9, mtime=0) if len(data) > SMALL and media.startswith(("text/", "image/svg")) else None
    charset = "; charset=utf-8" if media.startswith("text/") else ""
    return File(data, packed, f"{media}{charset}", f'"{hashlib.sha256(data).hexdigest()[:20]}"')
