"""Plans, chunks and given arrays: what is said before running is what runs."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as tf
from gradtape.runtime.chunks import available, budget_of
from tests.jacobian.programs import PROGRAMS, Program, batch_norm, jacobian, normal, tape_of

# ------------------------------------------------------------------ multiply-adds, counted where they are done

NUMPYS = pytest.mark.host("the products of NumPy are counted; the plan is the same on every device")


class Counting:
    """Stands in for NumPy's products and counts the multiply-adds of what is asked of them."""

    def __init__(self) -> None:
        self.total = 0

    def product(self, name: str) -> Any:
        original = getattr(np, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            a, b = (args[1], args[2]) if name == "einsum" else args[:2]
            self.total += self.cost(name, args, np.shape(a), np.shape(b))
            return original(*args, **kwargs)

        return counted

    def cost(self, name: str, args: Any, a: tuple[int, ...], b: tuple[int, ...]) -> int:
        if name == "einsum":
            left, right = args[0].split("->")[0].split(",")
            sizes = dict(zip(left, a, strict=True)) | dict(zip(right, b, strict=True))
            return int(np.prod(list(sizes.values()), dtype=int))
        if name == "tensordot":
            raise AssertionError("no contraction uses tensordot")
        if len(a) == 1 or len(b) == 1 or name == "dot":
            inner = a[-1]
            return int(np.prod(a, dtype=int) * np.prod(b, dtype=int)) // max(1, inner)
        lead = np.broadcast_shapes(a[:-2], b[:-2])
        return int(np.prod(lead, dtype=int)) * a[-2] * a[-1] * b[-1]


@contextlib.contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    count = Counting()
    with monkeypatch.context() as m:
        for name in ("matmul", "dot", "einsum", "tensordot"):
            m.setattr(np, name, count.product(name))
        yield count


NETWORK = [tf.constant(normal(*s)) for s in ((6, 11), (11, 13), (13, 4))]


def network(x: Any) -> Any:
    for w in NETWORK[:-1]:
        x = tf.tanh(tf.matmul(x, w))
    return tf.matmul(x, NETWORK[-1])


COUNTED = {
    "network": Program(network, normal(7, 6)),
    "batch norm": Program(lambda x: tf.matmul(batch_norm(tf.matmul(x, NETWORK[0])), NETWORK[1]), normal(7, 6)),
    "elementwise": Program(lambda x: tf.tanh(x) * tf.exp(-x * x), normal(50)),
    "attention": PROGRAMS["attention"],
    "recurrent": PROGRAMS["recurrent"],
    "matmul with itself": PROGRAMS["matmul with itself"],
    "einsum": PROGRAMS["einsum"],
}


@NUMPYS
@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("mode", ["reverse", "forward", "auto"])
def test_multiply_adds_are_those_of_the_plan(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tape, y, x = tape_of(COUNTED[name])
    plan = tape.plan_jacobian(y, x, mode=mode)
    with counting(monkeypatch) as count:
        tape.jacobian(y, x, mode=mode)
    assert count.total == plan.multiply_adds, f"counted {count.total}\n{plan}"


@NUMPYS
def test_counting_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    a = tf.constant(normal(3, 4))
    with counting(monkeypatch) as count:
        tf.matmul(a, tf.transpose(a))
    assert count.total == 3 * 4 * 3


def test_what_is_elementwise_costs_no_products_and_n_numbers() -> None:
    n = 300
    tape, y, x = tape_of(Program(lambda v: tf.tanh(v) * tf.exp(-v * v), normal(n)))
    plan = tape.plan_jacobian(y, x)
    assert plan.multiply_adds == 0
    assert plan.elements_written <= n * n + 20 * n
    assert plan.structure == "a | a : (a)"


def test_a_network_over_a_batch_costs_what_its_blocks_cost() -> None:
    """Not one row per example and output: examples share a letter with themselves alone."""
    tape, y, x = tape_of(COUNTED["network"])
    plan = tape.plan_jacobian(y, x)
    batch, rows = 7, 4
    assert plan.multiply_adds <= batch * rows * (13 * 11 + 11 * 6) + batch * rows * 13 * 11


MIX = tf.constant(normal(60, 60) / 8)


def test_a_scalar_source_takes_one_forward_row() -> None:
    def program(v: Any) -> Any:
        y = tf.exp(v * MIX[0])
        for _ in range(3):
            y = tf.tanh(tf.linalg.matvec(MIX, y))
        return y

    tape, y, x = tape_of(Program(program, np.array(0.1)))
    plan = tape.plan_jacobian(y, x)
    assert plan.mode == "forward"
    assert plan.rows == 1
    assert plan.multiply_adds == 3 * 60 * 60


def test_a_scalar_target_takes_one_reverse_row() -> None:
    def program(v: Any) -> Any:
        for _ in range(3):
            v = tf.tanh(tf.linalg.matvec(MIX, v))
        return tf.reduce_sum(v)

    tape, y, x = tape_of(Program(program, normal(60)))
    plan = tape.plan_jacobian(y, x)
    assert plan.mode == "reverse"
    assert plan.rows == 1
    assert plan.multiply_adds == 3 * 60 * 60


def test_a_plan_says_mode_structure_and_steps() -> None:
    tape, y, x = tape_of(COUNTED["network"])
    for mode in ("reverse", "forward"):
        plan = tape.plan_jacobian(y, x, mode=mode)
        assert plan.mode == mode
        text = str(plan)
        for part in (mode, "structure:", "multiply-adds", "steps:", "contract"):
            assert part in text
        assert len(plan.steps) > 2
        assert plan.result.dims == (7, 4, 7, 6)
    both = tape.plan_jacobian(y, x)
    assert set(both.costs) == {"reverse", "forward"}
    assert both.costs[both.mode] == min(both.costs.values())


# ------------------------------------------------------------------ chunks, budgets, given arrays


@pytest.mark.parametrize("memory", ["64KiB", "1MB", 100_000, 0.5, "1gib"])
def test_budgets(memory: Any) -> None:
    program = COUNTED["network"]
    want = jacobian(program.function, program.at).numpy()
    np.testing.assert_allclose(jacobian(program.function, program.at, memory=memory).numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("memory", ["1 gallon", -1, 1.5, 0.0, True, "GiB"])
def test_budgets_that_are_none(memory: Any) -> None:
    with pytest.raises(ValueError, match="memory"):
        budget_of(memory)


def test_budgets_in_words() -> None:
    assert budget_of("2GiB") == 2 * 2**30
    assert budget_of("1.5 kB") == 1500
    assert budget_of("64 kib") == 65536
    assert budget_of(7) == 7
    assert budget_of(None) is None
    assert 0 < budget_of(0.25) <= available()


@pytest.mark.parametrize("name", ["network", "elementwise", "einsum"])
def test_a_given_array_receives_the_result(name: str, tmp_path: Any) -> None:
    tape, y, x = tape_of(COUNTED[name])
    want = tape.jacobian(y, x).numpy()
    out = np.full(want.shape, np.nan)
    found = tape.jacobian(y, x, out=out, parallel_iterations=5)
    np.testing.assert_allclose(out, want, rtol=1e-12)
    np.testing.assert_array_equal(found.numpy(), out)
    file = np.memmap(tmp_path / "rows", np.float64, "w+", shape=want.shape)
    tape.jacobian(y, x, out=file, memory="100KiB")
    np.testing.assert_allclose(file, want, rtol=1e-12)


@pytest.mark.parametrize("how", ["loop", "outer tape", "itself"])
def test_a_given_array_is_never_left_out(how: str) -> None:
    x = tf.constant(normal(3))
    out = np.zeros((3, 3))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
    if how == "loop":
        tape.jacobian(y, x, out=out, experimental_use_pfor=False)
    elif how == "outer tape":
        with tf.GradientTape() as outer:
            outer.watch(x)
            tape.jacobian(y, x, out=out)
    else:
        tape.jacobian(x, x, out=out)
        np.testing.assert_array_equal(out, np.eye(3))
        return
    np.testing.assert_allclose(out, np.diag(2 * x.numpy()))


def test_a_bar_over_rows(capsys: pytest.CaptureFixture[str]) -> None:
    program = COUNTED["network"]
    jacobian(program.function, program.at, parallel_iterations=4, progress=True)
    assert "row" in capsys.readouterr().err


def test_running_out_of_memory_halves_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradtape.runtime import chunks

    program = COUNTED["network"]
    tape, y, x = tape_of(program)
    want = tape.jacobian(y, x).numpy()
    sizes: list[int] = []
    plan = chunks.ChunkProgram.plan

    def scarce(self: Any, count: int) -> Any:
        sizes.append(count)
        if count > 2:
            raise MemoryError
        return plan(self, count)

    monkeypatch.setattr(chunks.ChunkProgram, "plan", scarce)
    found = tape.jacobian(y, x, parallel_iterations=28)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12)
    assert sizes[0] > 2
    assert max(sizes[-2:]) <= 2
