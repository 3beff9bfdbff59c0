"""`tf.train`: checkpoints. Floor: saving."""

from gradtape.saving.checkpoint import Checkpoint, list_variables, load_checkpoint, load_variable, verify_checkpoint
from gradtape.saving.manager import CheckpointManager, latest_checkpoint

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "verify_checkpoint",
]
