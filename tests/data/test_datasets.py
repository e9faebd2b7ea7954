"""The table of data sets: what each entry promises, and known facts of the real ones."""

import builtins
import gzip
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from basil.data import BROUGHT, DATASETS, load, present, sources, where
from basil.data.files import read_digits
from basil.data.sources import SOURCES, Source
from basil.errors import UserError

EMBEDDED = [name for name in SOURCES if SOURCES[name] is None]

# Where the real files are, for those who have them; all other tests see an empty folder.
REAL = str(sources.root())


@pytest.fixture(autouse=True)
def data_root(tmp_path, monkeypatch):
    monkeypatch.setenv("BASIL_DATA", str(tmp_path))
    return tmp_path


def forbid(monkeypatch, module):
    """Makes `import module` fail."""
    really_import = builtins.__import__

    def fail(name, *args, **kwargs):
        if name.split(".")[0] == module:
            raise ImportError(name)
        return really_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fail)


def check(data):
    """What the rest of Basil relies on."""
    for samples in (data.train, data.test):
        assert len(samples) == len(samples.x) > 0
        assert samples.x.dtype in (np.uint8, np.float32)
        assert samples.x.flags.writeable
        assert samples.y.shape == (len(samples),)
        if data.classes:
            assert samples.y.dtype == np.int64
            assert 0 <= samples.y.min() <= samples.y.max() < data.classes
    assert len(data.class_names) == data.classes
    assert data.train.x.shape[1:] == data.test.x.shape[1:]
    channels = data.train.x.shape[1]
    assert len(data.mean) == len(data.std) in (1, channels)


def test_every_set_has_a_source_a_summary_and_options():
    assert [*SOURCES, *BROUGHT] == list(DATASETS)  # what is brought along comes from nowhere
    for name in DATASETS:
        assert DATASETS.summary(name)
        DATASETS.options(name)


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets_do_not_depend_on_the_seed(name):
    one, other = load(name, 1), load(name, 2)
    check(one)
    assert present(name)
    for a, b in ((one.train, other.train), (one.test, other.test)):
        assert np.array_equal(a.x, b.x)
        assert np.array_equal(a.y, b.y)


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in EMBEDDED])
def test_absent_files_are_named(name, data_root):
    assert not present(name)
    with pytest.raises(UserError, match=f"basil data get {name}`.*BASIL_DATA") as error:
        load(name, 0)
    assert str(data_root) in str(error.value)


def test_unknown_names_and_options():
    with pytest.raises(UserError, match=r"'minst' does not exist; did you mean 'mnist'"):
        load("minst", 0)
    with pytest.raises(UserError, match=r"'minst' does not exist; did you mean 'mnist'"):
        present("minst")
    with pytest.raises(UserError, match=r"no option 'fraction'; did you mean 'test_fraction'"):
        load("digits", 0, fraction=0.5)
    with pytest.raises(UserError, match=r"'mnist' has no option 'labels'; it has none"):
        load("mnist", 0, labels="fine")
    with pytest.raises(UserError, match="no folder"):
        where("digits")


def test_digits():
    data = load("digits", 0, test_fraction=0.25)
    assert data.train.x.shape == (1348, 1, 8, 8)
    assert data.test.x.shape == (449, 1, 8, 8)
    assert data.train.x.dtype == np.uint8
    assert data.train.x.max() == 16
    everything = np.concatenate([data.train.x, data.test.x]).reshape(1797, -1)
    assert len(np.unique(everything, axis=0)) == 1797  # no sample is in both
    assert ((data.train.x - data.mean[0]) / data.std[0]).std() == pytest.approx(1)
    for wrong in (0.0, 1.0, -0.1):
        with pytest.raises(UserError, match="test_fraction"):
            load("digits", 0, test_fraction=wrong)


def test_digits_are_scikit_learns():
    theirs = load_digits()
    x, y = read_digits()
    assert np.array_equal(x[:, 0], theirs.images)
    assert np.array_equal(y, theirs.target)


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match="pip install scikit-learn"):
        load("digits", 0)


def test_root_without_environment_or_platformdirs(monkeypatch):
    monkeypatch.delenv("BASIL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert sources.root().name == "basil"
    forbid(monkeypatch, "platformdirs")
    assert sources.root().parts[-2:] == (".cache", "basil")


def cifar_record(labels, value):
    return bytes(labels) + bytes([value]) * 3072


@pytest.fixture
def small_cifar(monkeypatch, data_root):
    """CIFAR-10 of one record in a file, CIFAR-100 of two, in the official archives' folders."""
    for name, width in (("cifar10", 3073), ("cifar100", 2 * 3074)):
        real = SOURCES[name]
        assert real is not None
        files = dict.fromkeys(real.files, width)
        monkeypatch.setitem(SOURCES, name, Source(real.folders, files, (), real.names))
    ten = data_root / "cifar-10-batches-bin"
    ten.mkdir()
    for i in range(1, 6):
        (ten / f"data_batch_{i}.bin").write_bytes(cifar_record([i], 10 * i))
    (ten / "test_batch.bin").write_bytes(cifar_record([9], 200))
    hundred = data_root / "cifar-100-binary"
    hundred.mkdir()
    (hundred / "train.bin").write_bytes(cifar_record([3, 61], 1) + cifar_record([19, 99], 2))
    (hundred / "test.bin").write_bytes(cifar_record([0, 4], 3) + cifar_record([1, 5], 4))


@pytest.mark.usefixtures("small_cifar")
def test_cifar10_joins_its_batches_in_order(data_root):
    assert present("cifar10")
    assert where("cifar10") == data_root / "cifar-10-batches-bin"
    data = load("cifar10", 0)
    check(data)
    assert data.train.y.tolist() == [1, 2, 3, 4, 5]
    assert data.train.x[:, 0, 0, 0].tolist() == [10, 20, 30, 40, 50]
    assert data.test.y.tolist() == [9]
    assert data.class_names[9] == "truck"


@pytest.mark.usefixtures("small_cifar")
def test_cifar100_has_two_levels_of_labels(data_root):
    data = load("cifar100", 0)
    check(data)
    assert data.classes == 20
    assert data.train.y.tolist() == [3, 19]
    assert data.train.fine is not None
    assert data.train.fine.tolist() == [61, 99]
    assert data.class_names[7] == "class 7"

    names = data_root / "cifar-100-binary" / "fine_label_names.txt"
    names.write_text("\n".join(f"animal {i}" for i in range(100)))
    data = load("cifar100", 0, labels="fine")
    check(data)
    assert data.classes == 100
    assert data.train.y.tolist() == [61, 99]
    assert data.train.fine is None
    assert data.class_names[7] == "animal 7"

    with pytest.raises(UserError, match=r"labels = 'course'.*'coarse'.*'fine'"):
        load("cifar100", 0, labels="course")


@pytest.mark.usefixtures("small_cifar")
def test_a_whole_folder_is_preferred_to_an_unfinished_one(data_root):
    (data_root / "cifar-10").mkdir()
    assert where("cifar10") == data_root / "cifar-10-batches-bin"
    (data_root / "cifar-10-batches-bin" / "test_batch.bin").unlink()
    assert where("cifar10") == data_root / "cifar-10"


def test_fashion_mnist_is_read_from_its_own_folder(data_root):
    folder = data_root / "fashion-mnist"
    folder.mkdir()
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28] + [5] * 784))
        )
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 1, 9]))
        )
    data = load("fashion-mnist", 0)
    check(data)
    assert data.class_names[data.train.y[0]] == "ankle boot"


def real(monkeypatch, name):
    monkeypatch.setenv("BASIL_DATA", REAL)
    if not present(name):
        pytest.skip(f"the files of {name} are not here")
    data = load(name, 0)
    check(data)
    # The constants are those of the training set; from counts, since floats of it are large.
    for channel in range(data.train.x.shape[1]):
        counts = np.bincount(data.train.x[:, channel].ravel(), minlength=256)
        mean = np.average(np.arange(256), weights=counts)
        std = np.sqrt(np.average((np.arange(256) - mean) ** 2, weights=counts))
        assert (mean, std) == pytest.approx((data.mean[channel], data.std[channel]), abs=0.01)
    return data


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_mnist(monkeypatch, name):
    data = real(monkeypatch, name)
    assert data.train.x.shape == (60_000, 1, 28, 28)
    assert data.test.x.shape == (10_000, 1, 28, 28)
    first = {"mnist": [5, 0, 4, 1, 9], "fashion-mnist": [9, 0, 0, 3, 0]}
    assert data.train.y[:5].tolist() == first[name]
    if name == "mnist":
        counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        assert np.bincount(data.train.y).tolist() == counts
        assert data.test.y[:5].tolist() == [7, 2, 1, 0, 4]


@pytest.mark.slow
def test_real_cifar10(monkeypatch):
    data = real(monkeypatch, "cifar10")
    assert data.train.x.shape == (50_000, 3, 32, 32)
    assert np.bincount(data.train.y).tolist() == [5000] * 10
    assert np.bincount(data.test.y).tolist() == [1000] * 10
    assert data.class_names[data.train.y[0]] == "frog"
    # The first photograph's first pixel, red, green and blue, as everybody's tutorial prints it.
    assert data.train.x[0, :, 0, 0].tolist() == [59, 62, 63]


@pytest.mark.slow
def test_real_cifar100(monkeypatch):
    data = real(monkeypatch, "cifar100")
    assert np.bincount(data.train.y).tolist() == [2500] * 20
    assert np.bincount(data.train.fine).tolist() == [500] * 100
    for superclass in range(20):
        assert len(np.unique(data.train.fine[data.train.y == superclass])) == 5
    assert data.class_names[0] == "aquatic_mammals"
    fine = load("cifar100", 0, labels="fine")
    assert np.array_equal(fine.train.y, data.train.fine)
    assert fine.class_names[fine.train.y[0]] == "cattle"
