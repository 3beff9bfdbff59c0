"""`tf.saved_model`: a module with its functions in a folder, and back. Floor: saving."""

from __future__ import annotations

import inspect
import os
import re
import secrets
from typing import Any

from gradtape.functions import Function, Options
from gradtape.keras.layers import Layer
from gradtape.keras.layers.inputs import dims_of
from gradtape.runtime.state import STATE
from gradtape.runtime.trace import outside
from gradtape.saving import rules, tracking
from gradtape.saving import signatures as signing
from gradtape.saving.damage import Damaged, fields, listed, reading
from gradtape.saving.files import PART, made, new, opened, sealed, settle, settle_all, sweep, turn
from gradtape.saving.loaded_objects import Loaded, Signatures
from gradtape.saving.objects import Objects
from gradtape.saving.weights import Writing, map_arrays
from gradtape.tracing.signatures import TensorSpec

__all__ = [
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY",
    "SERVING",
    "LoadOptions",
    "SaveOptions",
    "contains_saved_model",
    "load",
    "save",
    "verify",
]

KIND, VERSION = "saved model", 2
MODEL = "saved_model.json"
WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
PARTS = re.compile(rf"({WEIGHTS.pattern}|{re.escape(MODEL)})\.([0-9a-f]{{8}}){{1,2}}{re.escape(PART)}")
SERVING = "serve"
DEFAULT_SERVING_SIGNATURE_DEF_KEY = signing.DEFAULT


class SaveOptions:
    """How a model is saved.

    Args:
      experimental_custom_gradients: whether the rules of custom gradients are saved as graphs. Where they are not, a
        gradient of the loaded model finds them in the process that saved it only.

    All other arguments are accepted for compatibility.

    Source: `tf.saved_model.SaveOptions` of TensorFlow 2.
    """

    def __init__(
        self,
        namespace_whitelist: Any = None,
        save_debug_info: bool = False,
        function_aliases: Any = None,
        experimental_debug_stripper: bool = False,
        experimental_io_device: str | None = None,
        experimental_variable_policy: Any = None,
        experimental_custom_gradients: bool = True,
        experimental_image_format: bool = False,
        experimental_skip_saver: bool = False,
        experimental_sharding_callback: Any = None,
        extra_tags: Any = None,
    ) -> None:
        self.experimental_custom_gradients = bool(experimental_custom_gradients)


class LoadOptions:
    """How a model is loaded. All arguments are accepted for compatibility.

    Source: `tf.saved_model.LoadOptions` of TensorFlow 2.
    """

    def __init__(
        self,
        allow_partial_checkpoint: bool = False,
        experimental_io_device: str | None = None,
        experimental_skip_checkpoint: bool = False,
        experimental_variable_policy: Any = None,
        experimental_load_function_aliases: bool = False,
    ) -> None:
        pass


def save(obj: Any, export_dir: Any, signatures: Any = None, options: SaveOptions | None = None) -> None:
    """Save a module with its variables, containers and traced functions in a folder.

    What is in the folder is data: graphs as JSON and weights in a safetensors file. A crash leaves what was there
    before, or the new model whole.

    Args:
      obj: a `tf.Module`, or a Keras layer, model or optimizer. Of a Keras layer, what a call computes is saved too.
      export_dir: the folder; it is made if there is none.
      signatures: a `tf.function` with an input signature or a concrete function, or a dictionary of them by name.
      options: see `SaveOptions`.

    Raises:
      ValueError: what is no such object; a function that no file holds, with the reason.

    >>> import gradtape as tf, tempfile
    >>> class Line(tf.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.slope = tf.Variable(3.0)
    ...     @tf.function(input_signature=[tf.TensorSpec([None])])
    ...     def __call__(self, x):
    ...         return self.slope * x
    >>> folder = tempfile.mkdtemp()
    >>> tf.saved_model.save(Line(), folder)
    >>> loaded = tf.saved_model.load(folder)
    >>> print(loaded([1.0, 2.0]).numpy(), float(loaded.slope))
    [3. 6.] 3.0

    Source: `tf.saved_model.save` of TensorFlow 2.
    """
    if not tracking.has_state(obj):
        raise ValueError(
            f"Expected an object of type `Trackable`, such as `tf.Module` or a subclass of the `Trackable` class, for "
            f"export. Got {obj!r} with type {type(obj)}."
        )
    folder, number = os.fspath(export_dir), secrets.token_hex(8)
    weights, part = f"weights-{number}.safetensors", f"{MODEL}.{number}{PART}"
    with _apart():
        objects = Objects()
        call = _call_of(obj) if isinstance(obj, Layer) else None
        called = None if call is None else call.concrete_functions()[0]
        objects.add(obj, extra=None if call is None else {"__call__": call})
        with made(folder), new(folder, weights) as file, new(folder, part) as described:
            with Writing(file) as writing:
                writing.begin(objects.tables.arrays())  # while functions are traced, the disk has work
                objects.write_functions()
                named = signing.written(obj, signatures, objects, called)
                writing.finish(objects.tables.arrays())
            described.write(sealed(KIND, VERSION, _content(weights, objects, named, options or SaveOptions())))
            settle_all(folder, file, described)
            with turn(folder):
                described.close()
                with file.keeping():
                    os.replace(os.path.join(folder, part), os.path.join(folder, MODEL))
                settle(folder)
                sweep(folder, _is_ours, [weights])


def _apart() -> Any:
    """A block that no tape, trace or scope around it takes part in."""
    if STATE.tracers:
        raise RuntimeError("A model cannot be saved while a function is traced. Save it outside of `tf.function`.")
    return outside()


def _content(weights: str, objects: Objects, signatures: list[Any], options: SaveOptions) -> dict[str, Any]:
    """What describes a model whose arrays are in a file of this name."""
    functions = objects.functions
    if not options.experimental_custom_gradients:
        functions = [rules.without_rules(f) for f in functions]
    return {
        "weights": weights,
        "objects": objects.texts,
        "functions": functions,
        "signatures": signatures,
        **objects.tables.text(),
    }


def _is_ours(name: str) -> bool:
    """Whether a save, perhaps one of an earlier version, made a file, and left it behind."""
    return bool(WEIGHTS.fullmatch(name) or PARTS.fullmatch(name))


def _call_of(layer: Layer) -> Function | None:
    """What a call of a layer computes, as a traced function of inputs like those that it was built for; None where its
    class has one.

    Raises:
      ValueError: it is not built.
    """
    if isinstance(inspect.getattr_static(type(layer), "__call__"), Function):
        return None
    if not layer.built or layer._input_shape is None:
        raise ValueError(
            f"Layer '{layer.name}' cannot be saved with what it computes before it is built: call it on inputs, or "
            "`build` it, first."
        )

    def call(inputs: Any, training: bool = False) -> Any:
        return layer(inputs, training=training)

    f = Function(call, Options(None, autograph=True, reduce_retracing=False))
    specs = _specs(layer._input_shape, layer.input_dtypes)
    for training in (False, True):
        f.get_concrete_function(specs, training=training)
    return f


def _specs(shape: Any, dtype: Any) -> Any:
    """Specs of inputs like these, in batches of any size; `dtype`: one of all, or of each."""
    if isinstance(shape, dict):
        return {k: _specs(v, dtype[k] if isinstance(dtype, dict) else dtype) for k, v in shape.items()}
    if isinstance(shape, list | tuple) and shape and isinstance(shape[0], list | tuple):
        each = dtype if isinstance(dtype, list) else [dtype] * len(shape)
        return type(shape)(_specs(v, d) for v, d in zip(shape, each, strict=True))
    dims = dims_of(shape)
    return TensorSpec((None, *dims[1:]) if dims else dims, dtype)


# ------------------------------------------------------------------ loading


def load(export_dir: Any, tags: Any = None, options: LoadOptions | None = None) -> Any:
    """The object that was saved in a folder: its attributes, variables, containers and functions.

    No code of the file runs, and none of the code that made the model is needed. Weights are mapped, not copied, until
    they are assigned to. Functions take tapes, Jacobians and training as those that were saved; `signatures` has the
    signatures by name.

    Args:
      export_dir: the folder.
      tags: None, or "serve".
      options: accepted for compatibility.

    Raises:
      OSError: there is no saved model.
      DataLossError: it is damaged, or none of ours.
      ValueError: other tags.

    Source: `tf.saved_model.load` of TensorFlow 2.
    """
    folder = os.fspath(export_dir)
    given = [tags] if isinstance(tags, str) else list(tags or [SERVING])
    if given != [SERVING]:
        raise ValueError(
            f"Got an incompatible argument to `tags`: {tags}. The SavedModel at {folder} has one MetaGraph with tags "
            f"['{SERVING}']. You may omit the argument, pass 'None', or pass matching tags."
        )
    if not contains_saved_model(folder):
        raise OSError(f"SavedModel file does not exist at: {os.path.join(folder, MODEL)}")
    with reading(folder), outside():
        return _read(folder)


def _described(folder: str, checked: bool = False) -> tuple[Any, dict[str, Any]]:
    """What describes the model, and the arrays of the weights that belong to it. A save that comes in between takes the
    weights away; then it is the new model's turn."""
    missing = None
    while True:
        content = opened(os.path.join(folder, MODEL), KIND, VERSION)
        fields(content, "weights", "objects", "functions", "signatures", "variables", "constants")
        weights = content["weights"]
        if not isinstance(weights, str) or not WEIGHTS.fullmatch(weights):
            raise Damaged(f"{str(weights)[:80]!r} is no name of a weights file")
        try:
            return content, map_arrays(os.path.join(folder, weights), checked)[0]
        except FileNotFoundError:
            if weights == missing:
                raise
            missing = weights


def _read(folder: str) -> Any:
    content, arrays = _described(folder)
    loaded = Loaded(content, arrays)
    root = loaded.object(0)
    named = dict(signing.read_signature(s, loaded.functions) for s in listed(content["signatures"]))
    if not tracking.has_state(root):
        raise Damaged("its root is no module")
    vars(root)["signatures"] = Signatures(named)
    return root


def verify(export_dir: Any) -> None:
    """Read all of a saved model, and compare it with the digests that were written with it.

    `load` does that for the JSON, and for weights of up to 16 MB. Larger weights are mapped into memory and not read.

    Raises:
      OSError: there is no saved model.
      DataLossError: something in it was changed.
      ValueError: an earlier version wrote it, without digests of the weights.

    >>> import gradtape as tf, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> tf.saved_model.save(tf.Module(), folder)
    >>> tf.saved_model.verify(folder)
    """
    folder = os.fspath(export_dir)
    if not contains_saved_model(folder):
        raise OSError(f"SavedModel file does not exist at: {os.path.join(folder, MODEL)}")
    with reading(folder):
        _described(folder, checked=True)


def contains_saved_model(export_dir: Any) -> bool:
    """Whether there is a saved model in a folder.

    >>> import gradtape as tf
    >>> tf.saved_model.contains_saved_model("/nowhere")
    False
    """
    return os.path.isfile(os.path.join(os.fspath(export_dir), MODEL))
