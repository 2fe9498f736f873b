"""Callbacks: progress, early stopping, the best model, loggers, and a base class for your own."""

from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.callbacks.best import BestModel, EarlyStop
from fedcmoo.callbacks.loggers import MLflow, TensorBoard, WandB
from fedcmoo.callbacks.progress import ProgressBar

__all__ = ["BestModel", "Callback", "EarlyStop", "MLflow", "ProgressBar", "TensorBoard", "Training", "WandB"]
