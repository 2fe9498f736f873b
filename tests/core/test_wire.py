"""The format of messages on the wire."""

from __future__ import annotations

import random

import pytest
import torch

from fedcmoo.messages import BadMessageError, Message
from fedcmoo.wire import DTYPES, header, pack, unpack


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (300, 2), (0, 2**40), (1,) * 15])
def test_arrays_come_back_with_names_dtypes_shapes_and_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    array = torch.randint(0, 100, shape).to(dtype)
    sent = {
        "train/update/code": array,
        "train/update": array,
        "": array,
        "Größe": array.T if array.ndim == 2 else array,
    }
    back = unpack(pack(sent))
    assert list(back) == list(sent)
    for name, received in back.items():
        assert received.dtype == dtype
        assert received.shape == sent[name].shape
        assert torch.equal(received, sent[name])
        assert received.data_ptr() % 8 == 0


def test_nan_and_infinity_keep_their_bits() -> None:
    bits = torch.tensor([0x7F800001, 0x7FC00000, -0x00800000, 1], dtype=torch.int32)
    assert torch.equal(unpack(pack({"x": bits.view(torch.float32)}))["x"].view(torch.int32), bits)


def test_the_header_of_a_small_upload_has_less_than_seventy_bytes() -> None:
    """The two replies of FedCMOO with a LeNet and an upload of 0.02 d; JSON takes more than 300."""
    gram = {
        "jacobian/levels": torch.zeros(2, 128),
        "jacobian/step": torch.zeros(2, 1),
        "jacobian/own": torch.zeros(2, 2),
    }
    update = {"train/update/code": torch.zeros(1, 2424)}
    assert len(header(gram)) + len(header(update)) < 70


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends after 0 bytes"),
        (b"\x01\x00\x09x", "within its header"),
        (b"\x01\x00\x01x\xf1\x01\x00", "9 dtypes"),
        (b"\x01\x00\x01x\x01\xff\xff\xff\xff\xff\xff\xff\x01", "more than 7 bytes"),
        (b"\x01\x00\x01x\x01\x80\x80\x80\x80\x80\x80\x01", "bytes, but 0 follow"),  # 2^42 numbers are not allocated
        (b"\x01\x00\x01x\x01\x01" + b"\x00" * 5, "4 bytes, but 5 follow"),
        (b"\x01\x00\x01\xff\x40", "codec"),
        (b"\x02\x00\x01x\x40\x01\x00\x40\x00", "twice"),
        (b"\x01\x03\x01x\x40\x00", "longer than"),  # a first name that continues another one
        (b"\x01\x00\x01x\x41\x81\x00\x00", "longer than"),  # a dimension of 1 in two bytes
        (b"\x01\x00\x01x\x03\x00" + 2 * (b"\xff" * 6 + b"\x7f"), "too large"),  # no entries, but strides of 2^98
        (b"\x01\x00\x01x\x03" + 2 * (b"\xff" * 6 + b"\x7f") + b"\x00", "too large"),
    ],
)
def test_what_is_not_a_message_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(BadMessageError, match=why):
        Message.decode(data)


def test_random_bytes_are_refused_or_read() -> None:
    chance, read = random.Random(0), 0
    real = pack({"train/update": torch.ones(3), "train/loss": torch.ones(2, dtype=torch.float64)})
    for _ in range(3000):
        changed = bytearray(real)
        changed[chance.randrange(len(real))] = chance.randrange(256)
        for data in (bytes(changed), chance.randbytes(chance.randrange(40))):
            try:
                arrays = unpack(data)
            except ValueError:
                continue
            assert pack(arrays) == data
            read += 1
    assert 500 < read < 5000


@pytest.mark.parametrize(
    "arrays",
    [
        {"x" * 256: torch.ones(1)},
        {"x": torch.ones(1, dtype=torch.bool)},
        {"x": torch.ones((1,) * 16)},
        {str(n): torch.ones(1) for n in range(256)},
    ],
)
def test_what_the_format_cannot_express_is_an_error(arrays: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="may have"):
        pack(arrays)
