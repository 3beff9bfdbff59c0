"""The version, in the one place that packaging, `gradtape doctor` and the docs read. Lowest floor: imports nothing."""

__version__ = "0.1.0"
VERSION = __version__  # as `tf.version.VERSION`
