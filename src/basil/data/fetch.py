"""Fetches data sets: what `basil data get` does.

A file gets its name only once its checksum is right.  What a broken attempt brought is kept and
continued by the next one.  This is the one place in Basil that talks to servers of other people.
"""

import hashlib
import os
import shutil
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from basil.data.sources import Download, Source, present, source, where
from basil.errors import UserError

__all__ = ["get", "present", "where"]

ATTEMPTS = 5
PAUSE = 1.0  # seconds after the first failed attempt; doubled after each


def get(
    name: str, folder: str | os.PathLike[str] | None = None, progress: bool = True
) -> list[Path]:
    """Fetch what is missing of a data set and return its files.

    folder: root of the data sets in the place of $BASIL_DATA.  A set without files of its own has
    nothing to fetch and returns none.
    """
    files = source(name)
    if files is None:
        if progress:
            print(f"{name} needs no files: there is nothing to fetch", file=sys.stderr)
        return []
    target = where(name, folder)
    paths = [target / file for file in files.files]
    # Members of an archive have no published checksums; their sizes say whether they are there.
    if files.archive and files.complete(target):
        return paths
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"folder {target} cannot be made ({error.strerror}); "
            "set BASIL_DATA to a folder you can write to"
        ) from None
    for download in files.downloads:
        path = _fetch(name, download, target, progress)
        if files.archive:
            _extract(path, files, target)
            path.unlink()
    return paths


def _fetch(name: str, download: Download, folder: Path, progress: bool) -> Path:
    """The file of this download, whole and with the right checksum."""
    try:
        import requests

        from basil.data.download import Resume
    except ImportError as error:
        raise UserError(
            f"fetching data needs the package {error.name!r}, which is not installed here: run "
            f"`pip install requests`, or copy {download.url} to {folder} by hand"
        ) from None

    target: Path = folder / download.file
    part = target.with_name(target.name + ".part")
    aside = target.with_name(target.name + ".wrong")
    again = f"run `basil data get {name}` again"
    try:
        if target.exists() and _has(target, download.checksum):
            return target
        if target.exists():  # nobody should load it; but it may be somebody's only copy
            target.replace(aside)
        with _progress_bar(download.file, progress) as report:
            stale = True
            while stale:  # the old piece may be of another version: once more, from zero
                stale = Resume(part, report, ATTEMPTS, PAUSE).fetch(download.url)
                if _has(part, download.checksum):
                    os.replace(part, target)
                    aside.unlink(missing_ok=True)
                    return target
                part.unlink()
        what = (
            f"{download.url} does not have the checksum {download.checksum}, so {target} "
            f"was not kept; {again}, and if that does not help the server has changed it"
        )
    except requests.RequestException as error:
        what = f"{target} could not be fetched from {download.url} ({error}); {again}"
        if part.exists():
            what += f" to continue after the {part.stat().st_size} bytes it has"
    except OSError as error:
        what = f"{target} cannot be written ({error.strerror}); make room and {again}"
    if aside.exists():
        what += f"; what was there is now {aside.name}"
    raise UserError(what)


def _has(file: Path, checksum: str) -> bool:
    algorithm, _, digits = checksum.partition(":")
    with file.open("rb") as content:
        return hashlib.file_digest(content, algorithm).hexdigest() == digits


def _extract(archive: Path, files: Source, folder: Path) -> None:
    """Take the expected files, and nothing else, out of a tar archive.

    A member is chosen by its exact path and must be a regular file; what it is called here is up
    to us.  So no member can name a place outside the folder, or be a link to one.
    """
    wanted = {f"{files.archive}/{file}": file for file in (*files.files, *files.names)}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = wanted.get(member.name.removeprefix("./"))
                content = tar.extractfile(member) if name and member.isreg() else None
                if name is None or content is None:
                    continue
                if files.files.get(name) not in (None, member.size):
                    continue
                part = folder / (name + ".part")
                with content, part.open("wb") as out:
                    shutil.copyfileobj(content, out)
                os.replace(part, folder / name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(
            f"{archive} is not a sound archive ({error}); delete it and try again"
        ) from None
    except OSError as error:
        raise UserError(
            f"{archive} cannot be unpacked to {folder} ({error.strerror or error}); "
            "make room and try again"
        ) from None
    lacking = files.lacking(folder)
    if lacking:
        raise UserError(f"{archive} lacks {', '.join(lacking)}, or has them in another size")


@contextmanager
def _progress_bar(title: str, show: bool) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on stderr, moved by report(done, total)."""
    if not show:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
