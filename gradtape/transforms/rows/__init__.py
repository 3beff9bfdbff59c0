"""Rows with structure: values that depend on Jacobian rows, as short sums of unevaluated einsums over graph values.

Floor: transforms. Everything here makes graph nodes; nothing runs. docs/vectorizer.md explains the algebra."""
