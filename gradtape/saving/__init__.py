"""Saved models and checkpoints: graphs as JSON, weights as safetensors. Floor: saving."""
