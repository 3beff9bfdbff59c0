"""`tf.autograph.experimental`. Floor: api."""

from gradtape.tracing.status import do_not_convert, set_loop_options

__all__ = ["do_not_convert", "set_loop_options"]
