"""Where elements lie, as text: strides in terms of extents where they are products of them, else as integers that the
kernel is given. Floor: kernels."""

from __future__ import annotations

from gradtape.ir.cluster import Access, Cluster


class Addresses:
    """The positions that a kernel's text computes. `integers` are what it has to be given for that, by name."""

    def __init__(self, cluster: Cluster, vector: int | None) -> None:
        self.extents = [x.extent for x in cluster.loops]
        self.vector = vector
        self.integers: dict[str, int] = {f"n{k}": n for k, n in enumerate(self.extents)}

    def base(self, access: Access) -> str:
        """The position of an element, for given values of all loops."""
        return self._sum(access, None)

    def of(self, access: Access, low: str) -> str:
        """The position of an element, for round `i` of the vector loop from one of its values on."""
        step = 0 if self.vector is None else access.strides[self.vector]
        if not step:
            return self.base(access)
        along = "i" if low == "0" else f"{low} + i"
        along = along if step == 1 else f"({along}) * {self.stride(step)}"
        lead = self._sum(access, self.vector)
        return along if lead == "0" else f"{lead} + {along}"

    def row(self, name: str, access: Access, low: str, high: str) -> str:
        """The elements that the vector loop visits between two of its values."""
        assert self.vector is not None
        step = access.strides[self.vector]
        base = self._sum(access, self.vector)
        lead = "" if base == "0" else f"{base} + "
        if step == 1:
            return f"{name}[{lead}{low} : {lead}{high}]"
        by = self.stride(step)
        return f"{name}[{lead}({low}) * {by} : {lead}({high} - 1) * {by} + 1 : {by}]"

    def _sum(self, access: Access, without: int | None) -> str:
        terms = []
        for k, step in enumerate(access.strides):
            if step and k != without:
                factor = self.stride(step)
                terms.append(f"i{k}" if factor == "1" else f"i{k} * {factor}")
        return " + ".join(terms) or "0"

    def stride(self, step: int) -> str:
        """A number of elements, in terms of extents if it is a product of them."""
        if step == 1:
            return "1"
        product, text = 1, ""
        for k in range(len(self.extents) - 1, -1, -1):
            product, text = product * self.extents[k], f"n{k}" + (f" * {text}" if text else "")
            if product == step:
                return text
        if step in self.extents:
            return f"n{self.extents.index(step)}"
        name = next((n for n, s in self.integers.items() if n[0] == "d" and s == step), None)
        if name is None:
            name = f"d{len(self.integers) - len(self.extents)}"
            self.integers[name] = step
        return name
