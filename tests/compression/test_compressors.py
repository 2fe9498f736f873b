"""Compressors against sorting, a dense SVD, and their own promises: size, mean, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcmoo.compression import (
    COMPRESSORS,
    Compressor,
    Identity,
    Quantizer,
    RandomizedSVD,
    RandomMask,
    Rotated,
    TopK,
)
from fedcmoo.messages import BadMessageError, Message

SHAPE = (3, 700)
BUDGET = 4 * 700
COMPRESSED: list[Compressor] = [
    RandomizedSVD(),
    RandomizedSVD(values="float16"),
    TopK(),
    TopK(values="float16"),
    RandomMask(),
    RandomMask(values="float16"),
    Quantizer(),
    Rotated(),
    Rotated(adaptive=False),
]


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def jacobian(shape: tuple[int, int] = SHAPE, seed: int = 0) -> Tensor:
    """Entries of very different sizes, as gradients have, in a view with gaps between rows."""
    g = random(seed)
    M, d = shape
    wide = torch.randn(M, d + 5, generator=g) * torch.exp(2 * torch.randn(M, d + 5, generator=g))
    return wide[:, :d]


def through_the_wire(compressor: Compressor, h: Tensor, budget: int, seed: int = 1) -> Tensor:
    payload = Message.decode(compressor.encode(h, budget, random(seed)).encode())
    return compressor.decode(payload, (h.shape[0], h.shape[1]), budget, "client 0")


@pytest.mark.parametrize("compressor", COMPRESSED, ids=repr)
@pytest.mark.parametrize("budget", [BUDGET, BUDGET // 2, 3 * BUDGET])
def test_payloads_keep_the_budget_and_survive_the_wire(compressor: Compressor, budget: int) -> None:
    h = jacobian()
    before = h.clone()
    payload = compressor.encode(h, budget, random(1))
    assert payload.nbytes <= budget
    if isinstance(compressor, (TopK, RandomMask)) and budget <= BUDGET:
        assert payload.nbytes > budget - 8  # nothing is left unused
    assert torch.equal(h, before)
    decoded = compressor.decode(payload, SHAPE, budget, "client 0")
    assert decoded.shape == h.shape
    assert decoded.dtype == torch.float32
    assert torch.equal(through_the_wire(compressor, h, budget), decoded)


@pytest.mark.parametrize("compressor", [*COMPRESSED, Identity()], ids=repr)
def test_zero_stays_zero_and_double_is_accepted(compressor: Compressor) -> None:
    zero = torch.zeros(SHAPE, dtype=torch.float64)
    assert not through_the_wire(compressor, zero, BUDGET).any()


def test_identity_is_exact_and_half_precision_nearly_so_at_any_scale() -> None:
    h = jacobian()
    assert torch.equal(through_the_wire(Identity(), h, BUDGET), h)
    for scale in (1e-12, 1.0, 1e12):
        half = through_the_wire(Identity(values="float16"), scale * h, BUDGET)
        torch.testing.assert_close(half, scale * h, rtol=2**-10, atol=float(scale * h.abs().max()) * 2**-24)


@pytest.mark.parametrize("shape", [(2, 500), (30, 500)])
def test_top_k_keeps_the_largest_entries(shape: tuple[int, int]) -> None:
    h = jacobian(shape)
    M, d = shape
    budget = 4 * d
    payload = TopK().encode(h, budget, random())
    # The positions cost the smaller of a bitmap and an index list.
    k = max((budget - math.ceil(M * d / 8)) // 4, budget // 8)
    assert payload["entries"].numel() == k
    assert set(payload) == {"entries", "bitmap" if M == 2 else "index"}
    decoded = through_the_wire(TopK(), h, budget)
    largest = np.argsort(-np.abs(h.numpy().ravel()), kind="stable")[:k]
    expected = np.zeros(M * d, dtype=np.float32)
    expected[largest] = h.numpy().ravel()[largest]
    assert np.array_equal(decoded.numpy().ravel(), expected)


@pytest.mark.parametrize("shape", [(2, 4000), (3, 1001), (5, 7), (40, 30)])
def test_randomized_svd_comes_close_to_the_best_approximation_of_its_rank(shape: tuple[int, int]) -> None:
    h = jacobian(shape)
    budget = 12 * h.shape[1]
    payload = RandomizedSVD().encode(h, budget, random())
    (rows, rank), s = payload["left"].shape, payload["right"].shape[1]
    chunks = torch.nn.functional.pad(h, (0, rows * s // len(h) - h.shape[1])).view(rows, s)
    best = torch.linalg.svdvals(chunks)[rank:].norm()
    error = (through_the_wire(RandomizedSVD(), h, budget) - h).norm()
    assert best * 0.999 < error + 1e-5 < 1.02 * best + 1e-4


@pytest.mark.parametrize("shape", [(2, 28_515), (2, 1_685_888), (40, 11_168_832)])
def test_randomized_svd_has_the_rank_of_the_authors_runs_at_an_upload_of_d(shape: tuple[int, int]) -> None:
    M, d = shape
    rank = 4 * d // RandomizedSVD().least(shape)
    assert math.floor(d / (2 * math.sqrt(d * M))) - rank in (0, 1)  # one less where padding costs it


def test_randomized_svd_keeps_objectives_apart() -> None:
    # The gradient of one objective is zero, that of the other has rank one as a square: one component holds both.
    h = torch.zeros(2, 1800)
    h[0] = torch.outer(torch.randn(30, generator=random()), torch.randn(60, generator=random(1))).reshape(-1)
    torch.testing.assert_close(through_the_wire(RandomizedSVD(), h, 4 * 120), h, rtol=1e-4, atol=1e-5)


def compressor_error(compressor: Compressor, h: Tensor, budget: int, seed: int) -> Tensor:
    payload = compressor.encode(h, budget, random(seed))
    return (compressor.decode(payload, (h.shape[0], h.shape[1]), budget, "client 0") - h).reshape(-1)


@pytest.mark.parametrize(
    ("compressor", "budget"),
    [
        (RandomMask(), 4 * 20),
        (Quantizer(), 200),
        (Quantizer(), 70),
        (Quantizer(), 40),
        (Rotated(), 40),
        (Rotated(), 100),
    ],
)
def test_unbiased_compressors_are_right_on_average(compressor: Compressor, budget: int) -> None:
    h = jacobian((2, 60))
    directions = torch.randn(10, 120, generator=random(7))
    draws = torch.stack([compressor_error(compressor, h, budget, seed) @ directions.T for seed in range(400)])
    assert (draws.std(dim=0) > 0).all()
    assert (draws.mean(dim=0).abs() < 4 * draws.std(dim=0) / math.sqrt(len(draws))).all()


def test_a_quantized_entry_is_a_neighbour_on_its_grid() -> None:
    h = jacobian((2, 1000))
    for bits, budget in ((16, 2 * 2000 + 40), (8, 2000 + 40), (4, 1000 + 40), (2, 500 + 40)):
        error = (through_the_wire(Quantizer(), h, budget) - h).abs()
        step = h.abs().reshape(2, -1)[:, :768].view(2, 3, 256).amax(dim=2) / (2 ** (bits - 1) - 1)
        assert (error[:, :768].view(2, 3, 256) <= 1.001 * step[..., None]).all()


def test_a_random_mask_sends_one_entry_of_every_run() -> None:
    h = torch.arange(1.0, 101.0).reshape(2, 50)
    decoded = through_the_wire(RandomMask(), h, 4 * 25 + 8).reshape(25, 4)
    assert ((decoded != 0).sum(dim=1) == 1).all()
    assert torch.equal(decoded[decoded != 0] / 4, h.reshape(25, 4)[decoded != 0])


@pytest.mark.parametrize("compressor", [RandomizedSVD(), TopK(), RandomMask(), Quantizer(), Rotated()], ids=repr)
def test_a_budget_in_which_nothing_fits_is_refused(compressor: Compressor) -> None:
    with pytest.raises(ValueError, match=r"budget must be at least .* but got 0\.00"):
        compressor.encode(jacobian(), 4, random())


def tampered(payload: Message, **arrays: Tensor | None) -> Message:
    changed = {**payload, **arrays}
    return Message(**{name: array for name, array in changed.items() if array is not None})


def spoiled(array: Tensor, value: float) -> Tensor:
    array = array.contiguous().clone()
    array.view(-1)[0] = value
    return array


@pytest.mark.parametrize("compressor", [*COMPRESSED, Identity()], ids=repr)
def test_malformed_payloads_are_refused_by_sender_and_field(compressor: Compressor) -> None:
    payload = compressor.encode(jacobian(), BUDGET, random())
    for name, array in payload.items():
        wrong = {
            "missing": None,
            "dtype": array.double(),
            "longer": torch.cat([array, array]),
            "empty": array[:0],
            "absurd": array.new_zeros(1).expand(10**9),  # a billion entries, in no memory
        }
        if array.is_floating_point():
            wrong |= {"nan": spoiled(array, math.nan), "infinite": spoiled(array, math.inf)}
        for bad in wrong.values():
            with pytest.raises(BadMessageError, match=f"client 7.*'{name}'"):
                compressor.decode(tampered(payload, **{name: bad}), SHAPE, BUDGET, "client 7")
    with pytest.raises(BadMessageError, match=r"client 7.*surplus"):
        compressor.decode(tampered(payload, surplus=torch.ones(1)), SHAPE, BUDGET, "client 7")


@pytest.mark.parametrize(
    ("compressor", "name", "value"),
    [
        (TopK(), "index", -1),
        (TopK(), "index", 10**9),
        (Quantizer(), "step", -1.0),
        (Quantizer(), "levels", -128),
        (RandomMask(), "seed", -5),
    ],
)
def test_values_out_of_range_are_refused(compressor: Compressor, name: str, value: float) -> None:
    shape, budget = ((30, 500), 2000) if isinstance(compressor, TopK) else (SHAPE, BUDGET)
    payload = compressor.encode(jacobian(shape), budget, random())
    bad = tampered(payload, **{name: spoiled(payload[name], value)})
    with pytest.raises(BadMessageError, match=f"client 7: '{name}'"):
        compressor.decode(bad, shape, budget, "client 7")


@pytest.mark.parametrize("compressor", [*COMPRESSED, Identity(values="float16")], ids=repr)
def test_what_decodes_is_finite_or_refused(compressor: Compressor) -> None:
    """Random bytes in the arrays of a payload that has the right names, dtypes and shapes."""
    payload = compressor.encode(jacobian(), BUDGET, random())
    refused = 0
    for seed in range(40):
        g = np.random.default_rng(seed)
        changed = {}
        for name, array in payload.items():
            data = array.contiguous().numpy().copy()
            places = g.integers(0, data.nbytes, size=1 + seed % 8)
            data.view(np.uint8).reshape(-1)[places] = g.integers(0, 256, size=len(places))
            changed[name] = torch.from_numpy(data)
        try:
            decoded = compressor.decode(Message(**changed), SHAPE, BUDGET, "client 7")
        except BadMessageError as error:
            assert str(error).startswith("client 7")  # noqa: PT017 - the other draws may be well-formed
            refused += 1
        else:
            assert torch.isfinite(decoded).all()
    assert refused or not has_floats(payload)


def has_floats(payload: Message) -> bool:
    return any(array.is_floating_point() for array in payload.values())


@pytest.mark.parametrize(
    ("compressor", "huge"),
    [
        (Quantizer(), {"step": 3e38}),
        (RandomizedSVD(), {"left": 3e38, "right": 3e38}),
        (TopK(values="float16"), {"entries": 6e4, "scale": 3e38}),
        (Identity(values="float16"), {"h": 6e4, "scale": 3e38}),
    ],
)
def test_finite_arrays_with_infinite_products_are_refused(compressor: Compressor, huge: dict[str, float]) -> None:
    payload = compressor.encode(jacobian(), BUDGET, random())
    arrays = {name: torch.full_like(payload[name], value) for name, value in huge.items()}
    with pytest.raises(BadMessageError, match="client 7"):
        compressor.decode(tampered(payload, **arrays), SHAPE, BUDGET, "client 7")


def test_positions_must_be_distinct_and_as_many_as_entries() -> None:
    listed = TopK().encode(jacobian((30, 500)), 2000, random())
    repeated = spoiled(listed["index"], float(listed["index"][1]))
    with pytest.raises(BadMessageError, match="client 7: 'index' must be ascending"):
        TopK().decode(tampered(listed, index=repeated), (30, 500), 2000, "client 7")
    mapped = TopK().encode(jacobian(), BUDGET, random())
    full = torch.full_like(mapped["bitmap"], 255)
    with pytest.raises(BadMessageError, match="client 7: 'bitmap' must mark"):
        TopK().decode(tampered(mapped, bitmap=full), SHAPE, BUDGET, "client 7")


def test_settings_are_checked_and_registered() -> None:
    assert set(COMPRESSORS) == {"randomized-svd", "top-k", "random-mask", "quantizer", "rotated", "identity"}
    with pytest.raises(ValueError, match="power_iterations must not be negative, but got -1"):
        RandomizedSVD(power_iterations=-1)
    with pytest.raises(ValueError, match="values must be 'float32' or 'float16', but got 'float8'"):
        TopK(values="float8")  # type: ignore[arg-type]
