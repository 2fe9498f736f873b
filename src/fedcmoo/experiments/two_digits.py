"""Two handwritten digits side by side: a first problem to try, without downloads."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import nn

from fedcmoo.data.digits import two_digits
from fedcmoo.experiments.images import Splits, TwoObjectives
from fedcmoo.models.images import LeNet
from fedcmoo.validation import at_least_one, below_one


@dataclass(frozen=True, kw_only=True)
class TwoDigits(TwoObjectives):
    """Pairs of scikit-learn's handwritten digits on a 28x28 canvas; objectives: the left and the right digit.

    Training, validation and test pairs are made from different digits. The model is the LeNet-like network
    (34,635 parameters).

    Args:
        train_pairs: the number of training pairs of all clients together.
        validation_pairs: the number of validation pairs.
        test_pairs: the number of test pairs.
        dropout: the model's dropout probability; zero by default, since training is short.
        composition_seed: the seed that determines which digits are paired and where they are placed.
    """

    name: ClassVar[str] = "two-digits"
    title: ClassVar[str] = "two of scikit-learn's handwritten digits side by side; no download"
    objective_names: ClassVar[tuple[str, str]] = ("left", "right")

    train_pairs: int = 20_000
    validation_pairs: int = 2_000
    test_pairs: int = 2_000
    dropout: float = 0.0
    composition_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(train_pairs=self.train_pairs, validation_pairs=self.validation_pairs, test_pairs=self.test_pairs)
        below_one(dropout=self.dropout)

    def splits(self, data: Path | None) -> Splits:
        """Pairs of each part; the data folder is not used."""
        return Splits(*two_digits(self.train_pairs, self.validation_pairs, self.test_pairs, self.composition_seed))

    def model(self) -> nn.Module:
        return LeNet(dropout=self.dropout)
