"""`tf.autograph.experimental`. Floor: api."""

from gradtape.tracing.loop_options import set_loop_options
from gradtape.tracing.status import do_not_convert

__all__ = ["do_not_convert", "set_loop_options"]
