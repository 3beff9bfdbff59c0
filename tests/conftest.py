"""What is in this folder and is no test."""

# Importing it puts the whole process on the emulated device, so nothing that collects doctests may import it.
collect_ignore = ["on_emulated.py"]
