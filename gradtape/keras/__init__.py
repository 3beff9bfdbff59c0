"""`tf.keras`: layers, optimizers, losses and initializers, built on the public functions only. Floor: keras."""
