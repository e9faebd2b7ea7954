"""The two formats, read from files written here byte by byte; and every way they can be damaged."""

import gzip
import struct

import numpy as np
import pytest

from basil.data.files import read_cifar, read_idx, read_idx_samples, read_names
from basil.errors import UserError

AGAIN = "delete it and run `basil data get mnist` again"


def idx(*shape, data, kind=8):
    """An IDX file's content, before gzip."""
    return bytes((0, 0, kind, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + bytes(data)


def test_idx_axes_and_pixels(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx(2, 2, 3, data=[1, 2, 3, 4, 5, 6, 250, 251, 252, 0, 0, 9])))
    x = read_idx(path, "mnist", (2, 3))
    assert x.dtype == np.uint8
    assert x.tolist() == [[[1, 2, 3], [4, 5, 6]], [[250, 251, 252], [0, 0, 9]]]
    assert x.flags.writeable  # torch.from_numpy warns otherwise


whole = gzip.compress(idx(2, 2, 2, data=range(8)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (whole[:-12], "truncated"),
        (b"", "begins with"),
        (b"<html>not found</html>", "not a sound gzip file"),
        (whole[:14] + bytes((whole[14] ^ 255, whole[15] ^ 255)) + whole[16:], "sound gzip|begins"),
        (gzip.compress(idx(2, 2, 2, data=range(8), kind=9)), "begins with 00 00 09 03"),
        (gzip.compress(idx(8, data=range(8))), "begins with 00 00 08 01"),
        (gzip.compress(idx(2, 2, 2, data=range(8))[:9]), "header of 9 bytes instead of 16"),
        (gzip.compress(idx(2, 2, 2, data=range(7))), "7 bytes of data where.*promises 8"),
        (gzip.compress(idx(2, 2, 2, data=range(9))), "9 bytes of data where.*promises 8"),
        (gzip.compress(idx(2, 3, 2, data=range(12))), r"shape \(3, 2\) instead of \(2, 2\)"),
        (
            gzip.compress(idx(2**32 - 1, 2, 2, data=range(8))),
            f"promises {4 * (2**32 - 1)}",
        ),
    ],
    ids=map(str, range(11)),  # not the bytes: gzip puts the time of day into them
)
def test_damaged_idx(tmp_path, content, says):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=says) as error:
        read_idx(path, "mnist", (2, 2))
    assert str(path) in str(error.value)
    assert AGAIN in str(error.value)


def test_missing_idx_says_how_to_get_it(tmp_path):
    with pytest.raises(UserError, match=r"basil data get mnist.*BASIL_DATA") as error:
        read_idx(tmp_path / "absent.gz", "mnist", ())
    assert str(tmp_path / "absent.gz") in str(error.value)


def test_unreadable_idx(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_idx(tmp_path, "mnist", ())  # a folder


def write_pair(folder, labels, images=3):
    pixels = np.arange(images * 784, dtype=np.uint32).astype(np.uint8)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(idx(images, 28, 28, data=pixels.tobytes()))
    )
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(idx(len(labels), data=labels))
    )


def test_mnist_pair(tmp_path):
    write_pair(tmp_path, [7, 0, 9])
    samples = read_idx_samples(tmp_path, "train", "mnist")
    assert samples.x.shape == (3, 1, 28, 28)
    assert samples.x[1, 0, 0, :3].tolist() == [784 % 256, 785 % 256, 786 % 256]
    assert samples.y.dtype == np.int64
    assert samples.y.tolist() == [7, 0, 9]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([1, 10, 2], "gives sample 1 the label 10, but the labels are 0 to 9"),
        ([1, 2], "has 2 labels for 3 images"),
    ],
)
def test_wrong_labels(tmp_path, labels, says):
    write_pair(tmp_path, labels)
    with pytest.raises(UserError, match=says) as error:
        read_idx_samples(tmp_path, "train", "mnist")
    assert "train-labels-idx1-ubyte.gz" in str(error.value)
    assert AGAIN in str(error.value)


def record(*labels, red, green, blue):
    return bytes(labels) + bytes([red] * 1024) + bytes([green] * 1024) + bytes([blue] * 1024)


def test_cifar_labels_and_channels(tmp_path):
    path = tmp_path / "train.bin"
    second = bytearray(record(19, 99, red=4, green=5, blue=6))
    second[2 + 1024 + 32 + 3] = 77  # green, row 1, column 3
    path.write_bytes(record(0, 7, red=1, green=2, blue=3) + second)
    x, (coarse, fine) = read_cifar(path, "cifar100", (20, 100), 2 * 3074)
    assert x.dtype == np.uint8
    assert x.shape == (2, 3, 32, 32)
    assert x[:, :, 0, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert x[1, 1, 1, 3] == 77
    assert coarse.tolist() == [0, 19]
    assert fine.tolist() == [7, 99]
    assert coarse.dtype == fine.dtype == np.int64
    assert x.flags.writeable


@pytest.mark.parametrize(
    ("content", "size", "says"),
    [
        (record(1, red=0, green=0, blue=0)[:-1], None, "3072 bytes, not a whole number of 3073"),
        (b"", None, "0 bytes"),
        # Cut off between two records: only the known size can tell.
        (record(1, red=0, green=0, blue=0), 2 * 3073, "3073 bytes instead of 6146"),
        (record(10, red=0, green=0, blue=0), None, "sample 0 the label 10.*0 to 9"),
    ],
)
def test_damaged_cifar(tmp_path, content, size, says):
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(content)
    with pytest.raises(UserError, match=says) as error:
        read_cifar(path, "cifar10", (10,), size)
    assert str(path) in str(error.value)
    assert "basil data get cifar10" in str(error.value)


def test_missing_cifar(tmp_path):
    with pytest.raises(UserError, match=r"basil data get cifar10.*BASIL_DATA"):
        read_cifar(tmp_path / "absent.bin", "cifar10", (10,), None)


def test_class_names(tmp_path):
    path = tmp_path / "names.txt"
    assert read_names(path, ["a", "b"]) == ("a", "b")
    path.write_text("apple\r\nbear\r\n\r\n")  # the official files end in blank lines
    assert read_names(path, ["a", "b"]) == ("apple", "bear")
    path.write_text("apple\n")
    assert read_names(path, ["a", "b"]) == ("a", "b")
