"""Where the files of a data set lie on this machine, and where in the world they come from."""

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from basil.errors import UserError
from basil.table import nearest


@dataclass(frozen=True)
class Download:
    """One file on a server; the checksum is "algorithm:hexadecimal digits"."""

    url: str
    checksum: str

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Source:
    """The files of one data set.

    folders: its folder below the root; the first is Basil's own, the others are accepted as well.
    files: name -> size in bytes, None where the size is not checked.
    names: files with class names, nice to have.
    archive: the folder inside the downloads, when they are tar archives of `files` and `names`.
    """

    folders: tuple[str, ...]
    files: Mapping[str, int | None]
    downloads: tuple[Download, ...]
    names: tuple[str, ...] = ()
    archive: str | None = None

    def lacking(self, folder: Path) -> list[str]:
        """The files that are not in the folder, or not in their size."""
        return [
            name
            for name, size in self.files.items()
            if not (folder / name).is_file() or size not in (None, (folder / name).stat().st_size)
        ]

    def complete(self, folder: Path) -> bool:
        return not self.lacking(folder)


def _idx(folder: str, url: str, checksums: Mapping[str, str]) -> Source:
    return Source(
        folders=(folder,),
        files=dict.fromkeys(checksums),
        downloads=tuple(Download(url + file, checksum) for file, checksum in checksums.items()),
    )


# None: no files of its own.  The keys are those of DATASETS.
SOURCES: dict[str, Source | None] = {
    "digits": None,
    "mnist": _idx(
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "sha256:"
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "sha256:"
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "sha256:"
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "sha256:"
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    "fashion-mnist": _idx(
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    # CIFAR's "binary version": the same pixels as the Python version, which is a pickle, and a
    # pickle runs whatever code its author likes.
    "cifar10": Source(
        folders=("cifar-10", "cifar-10-batches-bin"),
        files={
            **{f"data_batch_{i}.bin": 10_000 * 3073 for i in range(1, 6)},
            "test_batch.bin": 10_000 * 3073,
        },
        names=("batches.meta.txt",),
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "md5:c32a1d4ab5d03f1284b67883e8d87530",
            ),
        ),
        archive="cifar-10-batches-bin",
    ),
    "cifar100": Source(
        folders=("cifar-100", "cifar-100-binary"),
        files={"train.bin": 50_000 * 3074, "test.bin": 10_000 * 3074},
        names=("coarse_label_names.txt", "fine_label_names.txt"),
        downloads=(
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                "md5:03b5dce01913d631647c71ecec9e9cb8",
            ),
        ),
        archive="cifar-100-binary",
    ),
    "synthetic": None,
}


def source(name: str) -> Source | None:
    """The files of a data set; None for one that has none."""
    if name not in SOURCES:
        raise UserError(f"data set {name!r} does not exist; {nearest(name, SOURCES)}")
    return SOURCES[name]


def root() -> Path:
    """$BASIL_DATA, or the user's cache folder."""
    chosen = os.environ.get("BASIL_DATA")
    if chosen:
        return Path(chosen).expanduser()
    try:
        import platformdirs
    except ImportError:  # training needs torch and numpy alone
        return Path.home() / ".cache" / "basil"
    return Path(platformdirs.user_cache_dir("basil", appauthor=False))


def where(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder where a data set is looked for, below `folder` in the place of $BASIL_DATA."""
    files = source(name)
    if files is None:
        raise UserError(f"data set {name!r} needs no files, so there is no folder for it")
    base = root() if folder is None else Path(folder).expanduser()
    folders = [base / candidate for candidate in files.folders]
    for candidate in folders:
        if files.complete(candidate):
            return candidate
    return next((candidate for candidate in folders if candidate.is_dir()), folders[0])


def present(name: str) -> bool:
    """Whether a data set can be loaded without fetching anything."""
    files = source(name)
    if files is None:
        return name != "digits" or importlib.util.find_spec("sklearn") is not None
    return files.complete(where(name))
