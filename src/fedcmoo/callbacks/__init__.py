"""Callbacks: progress, early stopping, the best model, loggers, and a base class for your own."""

from fedcmoo.callbacks.base import Callback, Training
from fedcmoo.callbacks.best import BestModel
from fedcmoo.callbacks.early_stop import EarlyStop
from fedcmoo.callbacks.mlflow import MLflow
from fedcmoo.callbacks.progress import ProgressBar
from fedcmoo.callbacks.tensorboard import TensorBoard
from fedcmoo.callbacks.wandb import WandB

__all__ = ["BestModel", "Callback", "EarlyStop", "MLflow", "ProgressBar", "TensorBoard", "Training", "WandB"]
