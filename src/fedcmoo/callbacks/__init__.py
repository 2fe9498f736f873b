"""Callbacks: progress, early stop, TensorBoard, and your own."""

from fedcmoo.callbacks.base import Callback, Run
from fedcmoo.callbacks.early_stop import EarlyStop
from fedcmoo.callbacks.progress import ProgressBar
from fedcmoo.callbacks.tensorboard import TensorBoard

__all__ = ["Callback", "EarlyStop", "ProgressBar", "Run", "TensorBoard"]
