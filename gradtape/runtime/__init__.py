"""What runs: tensors, variables, eager dispatch, recording, plans. Floor: runtime."""
