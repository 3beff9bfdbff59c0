"""How a Python function becomes a graph: its signature, its trace, its control flow on tensors. Floor: tape.

The library `diastatic-malt` rewrites a function's `if`, `while`, `for`, `and`, `or`, `not`, `break`, `continue` and
`return` as calls; what these do stands in `statements`. It is loaded when the first function is converted."""
