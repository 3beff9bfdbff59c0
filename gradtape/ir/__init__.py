"""The lowest floor: dtypes, shapes, scalar expressions and graphs. It knows nothing of ops or arrays that run."""
