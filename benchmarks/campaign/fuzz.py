"""Fuzzed replies: real ones, with bytes flipped, cut off and mixed, are refused or decode to finite numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from campaign.outcome import Outcome
from campaign.problem import small_problem
from fedcmoo.compression import COMPRESSORS, budget_bytes
from fedcmoo.contributions import add_reply
from fedcmoo.gram import GRAMS, OneWay, TwoWay, TwoWayAsRun
from fedcmoo.gram.sketch import SketchedJacobian
from fedcmoo.gram.two_way import Correction
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.methods import FSMGDA, MGDA, FedAvg, FedCMOO, FedCMOOPref, Method
from fedcmoo.randomness import derive
from fedcmoo.sums import Sums
from fedcmoo.worker import Request, Worker

BUDGET = 2.0
"""In multiples of d numbers: enough for every compressor of a model this small."""


def methods() -> Iterator[tuple[str, Method]]:
    """Methods that have, together, every contribution with every compressor."""
    yield "losses", FedCMOOPref()
    for method in (FedAvg, FSMGDA, MGDA):
        for name, compressor in COMPRESSORS.items():
            yield f"{method.__name__} {name}", method(update=compressor(), update_budget=BUDGET)
    for name, gram in GRAMS.items():
        yield name, FedCMOO(gram=gram())
    for name, compressor in COMPRESSORS.items():
        for estimator in (OneWay, TwoWay, TwoWayAsRun):
            yield f"{estimator.__name__} {name}", FedCMOO(gram=estimator(compressor(), BUDGET))


def real_replies(seed: int) -> Iterator[tuple[str, Worker, list[str], bytes]]:
    """Encoded replies of a client, one for each contribution of each method, with the worker that can read them."""
    problem = small_problem(seed)
    for label, method in methods():
        worker = Worker(problem, method.channels(), seed)
        for name in worker.channels:
            yield f"{label}: {name}", worker, [name], _reply(worker, name, seed)


def _reply(worker: Worker, name: str, seed: int) -> bytes:
    state = worker.model.state
    reply, _ = worker.reply(state, Request(0, state.version, {name: _message(worker, name, seed)}), 0)
    return reply.encode()


def _message(worker: Worker, name: str, seed: int) -> Message:
    """What the server sends for a contribution."""
    M, d = worker.sizes.M, worker.sizes.d_shared
    contribution = worker.channels[name].contribution
    if isinstance(contribution, Correction):
        draws = torch.Generator().manual_seed(seed)
        h = torch.randn(M, d, generator=draws)
        return contribution.compressor.encode(h, budget_bytes(contribution.budget, d), draws)
    if isinstance(contribution, SketchedJacobian):
        return Message(seed=torch.tensor([derive(seed, "sketch")]))
    return Message(w=torch.full((M,), 1 / M, dtype=torch.float64)) if name.startswith("train") else Message()


def mutated(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """The bytes with some flipped, cut off, set to extremes, or replaced by those of another reply."""
    kind = chance.randrange(5)
    place = chance.randrange(len(data))
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + other[chance.randrange(len(other)) :]
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        place = chance.randrange(len(data))
        if kind == 2:
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 3:
            changed[place : place + 4] = chance.choice((b"\xff\xff\x7f\x7f", b"\x00\x00\x80\xff", b"\xff\xff\xff\xff"))
        else:
            changed[place] = chance.randrange(256)
    return bytes(changed)


EXTREMES = (float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e19, -1e19, 1e-45, -1.0, 0.0, 127.0)
DTYPES = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.int16)


def rewritten(data: bytes, chance: random.Random) -> bytes:
    """A well-formed message: a reply with extreme values, or another shape, type or name of one of its arrays."""
    arrays = dict(Message.decode(data))
    name = chance.choice(sorted(arrays))
    array = arrays.pop(name)
    kind = chance.randrange(6)
    if kind <= 2 and array.numel():
        value = chance.choice(EXTREMES if array.is_floating_point() else EXTREMES[-2:])
        for _ in range(chance.choice((1, 2, array.numel()))):
            array.view(-1)[chance.randrange(array.numel())] = value
    elif kind == 3:
        array = chance.choice((array[None], array.reshape(-1), array[:0], torch.zeros((0, 2**40))))
    elif kind == 4:
        array = array.to(chance.choice(DTYPES))
    else:
        name = chance.choice((f"{name}/", "", "train/update", name.upper()))
    return Message(**{**arrays, name: array}).encode()


def fuzzed_messages(count: int, seed: int) -> Outcome:
    """`count` fuzzed replies, spread evenly over all contributions and compressors."""
    chance, counts, broken = random.Random(seed), Counter[str](), list[str]()
    torch.set_num_threads(1)
    replies = list(real_replies(seed))
    for n in range(count):
        label, worker, names, data = replies[n % len(replies)]
        other = replies[chance.randrange(len(replies))][3]
        fuzzed = mutated(data, other, chance) if n % 3 else rewritten(data, chance)
        verdict = _verdict(worker, names, fuzzed)
        counts[verdict if verdict in ("refused", "accepted") else "broken"] += 1
        if verdict not in ("refused", "accepted"):
            broken.append(f"{label}: {verdict}"[:200])
    held = counts["refused"] + counts["accepted"]
    numbers = {"kinds of replies": len(replies), "refused": counts["refused"], "accepted, finite": counts["accepted"]}
    return Outcome("fuzzed messages", count, held, numbers, broken[:5])


def _verdict(worker: Worker, names: list[str], data: bytes) -> str:
    sums = Sums()
    try:
        reply = Message.decode(data, 2**24)
        add_reply(sums, worker.channels, dict.fromkeys(names, Message()), reply, worker.sizes, "client 0")
    except BadMessageError:
        return "refused" if not sums.totals else "a refused reply was added"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted" if all(_finite(array) for array in sums.totals.values()) else "not finite"


def _finite(array: Tensor) -> bool:
    return bool(torch.isfinite(array).all())
