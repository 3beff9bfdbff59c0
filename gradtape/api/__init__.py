"""The public functions under TensorFlow's names: thin, over the op table. Floor: api."""
